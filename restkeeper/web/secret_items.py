"""The handlers of items that have a secret.

Only one response has a secret, of an API key or of a webhook, and is never cached.
"""

from dataclasses import replace

from flask import request

from restkeeper import exactjson
from restkeeper.clock import rfc3339
from restkeeper.exactjson import JsonObject
from restkeeper.resources.call import ADMIN, NONE
from restkeeper.resources.changes import Answer, Command, Once, Operation, Unit
from restkeeper.resources.items import CollectionReader
from restkeeper.resources.writes import CommandUnit
from restkeeper.storage.interface import Record
from restkeeper.web.application import Reply, address_of
from restkeeper.web.bodies import JSON, require_acceptable
from restkeeper.web.calls import current_call
from restkeeper.web.handlers import UNCACHED, CollectionHandlers, json_reply
from restkeeper.web.operations import Result

ROTATED = Result("The item, and its new secret.", {JSON: "{}WithSecret"}, ("ETag",))
STORED_NEW_WITH_SECRET = replace(ROTATED, about="The item, and its secret.", headers=(*ROTATED.headers, "Location"))


class SecretItemHandlers(CollectionHandlers):
    """The handlers of a collection whose items have a secret: for admins."""

    needs = ADMIN  # all of them, see `auth.needed_by`

    def make(self, sent: JsonObject, now: str) -> tuple[Record, str]:
        """A new item, and its secret. Raises ValidationFailed."""
        raise NotImplementedError

    def renewed(self, record: Record, now: str) -> tuple[Record, str]:
        """An item with another secret. Raises ValidationFailed for one that cannot have one."""
        raise NotImplementedError

    def store(self, unit: Unit, before: Record | None, record: Record, secret: str) -> None:
        """Store both, in the place of the item `before`, if there is one."""
        raise NotImplementedError

    def forget(self, unit: Unit, id: str) -> None:
        """Delete what is stored beside an item."""
        raise NotImplementedError

    def delete_with_secret(self, id: str) -> Reply:
        """The response to the deletion of an item and its secret."""
        require_acceptable(JSON)
        command = Command("delete", self.name, id, None, Operation(self._delete), current_call().conditions)
        return self.execute([command], Once(json_reply))

    def save_with_secret(self, id: str = "") -> Reply:
        """The response to the creation of an item, or to a new secret of the one with this id: it has the secret."""
        require_acceptable(JSON)
        sent, path = (None, "") if id else (self.body(JSON), request.path)
        now = rfc3339(self.items.domain.clock.time())

        def render(answer: Answer) -> Reply:
            reply = Reply(answer.body, headers={"Cache-Control": UNCACHED, "ETag": f'"{answer.tag}"'})
            if path:
                reply.headers["Location"] = address_of(f"{path}/{answer.id}")
            return reply

        how = Operation(self._renew) if id else Operation(self._insert, lambda sent: self.make(sent, now))
        command = Command("act", self.name, id, sent, how, current_call().conditions)
        return self.execute([command], self.items.domain.once(sent, render, secret=True))

    def _insert(self, unit: CommandUnit, to: CollectionReader, _: None, new: tuple[Record, str]) -> Answer:
        if unit.call.conditions is not NONE:
            unit.require_list(to, unit.call.conditions)
        return self._saved(unit, to, None, *new)

    def _renew(self, unit: CommandUnit, to: CollectionReader, before: Record, _: None) -> Answer:
        return self._saved(unit, to, before, *self.renewed(before, unit.now()))

    def _saved(
        self, unit: CommandUnit, to: CollectionReader, before: Record | None, record: Record, secret: str
    ) -> Answer:
        self.store(unit, before, record, secret)
        item = exactjson.loads(to.view.body(record))
        return Answer(exactjson.dumps(item | {"secret": secret}), to.tag(record), id=record.id)

    def _delete(self, unit: CommandUnit, to: CollectionReader, before: Record, _: None) -> Answer:
        unit.write_item(to, before, None)
        self.forget(unit, before.id)
        return Answer(to.view.body(before))
