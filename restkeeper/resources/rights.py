"""The values that a caller may set in an item: of the owner, the references and the states.

The view of the caller knows the fields that it may set at all.
"""

from collections.abc import Mapping
from contextlib import suppress

from marshmallow import ValidationError

from restkeeper import exactjson
from restkeeper.errors import IllegalTransition
from restkeeper.exactjson import JsonObject
from restkeeper.resources.call import Caller, lacking
from restkeeper.resources.relations import References
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView, View
from restkeeper.schemas.fields import Status
from restkeeper.storage.interface import Record


class Rights:
    """Which values of the fields of a collection's items a caller may set."""

    def __init__(self, stored: StoredView, resources: Mapping[str, Resource], references: References) -> None:
        revision, self._references = stored.revision, references
        self._stored, self._owner = stored, revision.definitions.get(revision.owner)
        to = {field.to for field in revision.references.values()} - {stored.name}  # its writers know its items
        self._scopes = {name: resources[name].scope("read") for name in to}
        states = {name: field.lifecycle for name, field in revision.guarded.items() if isinstance(field, Status)}
        self._states = {name: states[name] for name in states if states[name].scopes or states[name].by_actions}

    @property
    def restricts_values(self) -> bool:
        """Whether some callers may not set all values of all fields."""
        return bool(self._owner or self._scopes or self._states)

    def require_values(
        self, caller: Caller, view: View, sent: JsonObject, before: Record | None, after: Record
    ) -> None:
        """Raises Forbidden for an owner, a reference or a state that the item did not have, and the caller may not set.

        Raises IllegalTransition for a state that actions alone set.
        """
        revision = self._stored.revision
        is_named = not sent.keys().isdisjoint(view.names_of(revision.owner))
        if is_named and (before is None or after.owner != before.owner):  # else it is a rule of the schema
            view.access.require_owner(caller, after.owner)
        had = self._stored.present(before).body if before else exactjson.joined(revision.defaults)
        self._require_readable(caller, view, had, after.body)
        self._require_states(caller, view, had, after.body, None if before else sent)

    def require_owner(self, caller: Caller, view: View, sent: JsonObject, before: Record | None) -> None:
        """Raises Forbidden for another owner in the body, before the faults of the body are known.

        Not for a locked field: for this the view raises Forbidden.
        """
        name = view.owner_field
        if self._owner and name and name in sent and view.locked.keys().isdisjoint(sent):
            with suppress(ValidationError):  # the schema refuses such a value later
                owner = self._owner.deserialize(sent[name])
                if before is None or owner != before.owner:
                    view.access.require_owner(caller, owner)

    def _require_readable(self, caller: Caller, view: View, had: bytes, has: bytes) -> None:
        """Raises Forbidden for a reference to items that the caller may not read: their existence is private."""
        if not (unreadable := {name: scope for name, scope in self._scopes.items() if not caller.may(scope)}):
            return
        for field, new in self._references.added(self._stored, had, has):
            if new and field.to in unreadable:
                error = view.known_fault({"pointer": next(iter(new.values())), "detail": ""})
                raise lacking(unreadable[field.to], f"a new reference in {error['pointer'].removeprefix('#/')}")

    def _require_states(self, caller: Caller, view: View, had: bytes, has: bytes, new: JsonObject | None) -> None:
        """Raises Forbidden or IllegalTransition for a state; a `new` item may have one that was not sent."""
        before, after = (exactjson.cut(body) if self._states else {} for body in (had, has))
        for name, lifecycle in self._states.items():
            names = view.names_of(name)
            state, state_before = (exactjson.decoded(members.get(name, b"null")) for members in (after, before))
            is_default = new is not None and not view.is_converted(name) and new.keys().isdisjoint(names)
            if state == state_before or is_default:
                continue
            if (scope := lifecycle.scopes.get(state)) and not caller.may(scope):
                raise lacking(scope, f"a change of {view.name_of(name)} to {state}")
            if action := lifecycle.by_actions.get(state):
                detail = f"{view.name_of(name)} cannot be set to {state}: only the action {action} does that"
                raise IllegalTransition(detail, field=view.name_of(name), to=state, action=action)
