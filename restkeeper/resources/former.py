"""Items of former revisions: converted to the newest revision, and as callers see them."""

from restkeeper import exactjson
from restkeeper.resources.item import ItemForm
from restkeeper.resources.step import revision_of
from restkeeper.resources.views import View
from restkeeper.storage.interface import Record


def converted(form: ItemForm, record: Record, *, anew: bool = True) -> Record:
    """A record in the form of a revision; a record of an earlier revision is converted by the steps from it.

    Unless `anew`, computed values of the record stay. Raises Untranslatable, and RevisionDiffers for a record of a
    later revision.
    """
    revision, number, revisions = form.revision, revision_of(record.fingerprint), form.resource.revisions
    if number > revision.number or number not in revisions:
        return form.present(record)
    stored = form.stored_members(record)
    members, removed_fields = stored, record.removed_fields
    if number < revision.number:
        chain = form.resource.chain(number, revision.number)
        members, removed_fields = chain.up(revisions[number].with_defaults(stored), removed_fields)
    of_server = {name: text for name, text in stored.items() if name in revision.of_server}
    computed = revision.computed if anew else revision.computed - members.keys()
    return form.with_members(record._replace(removed_fields=removed_fields), {**members, **of_server}, computed)


def former_body(view: View, record: Record) -> bytes:
    """The representation of a record of any revision that has steps, such as the record of an event.

    Raises Untranslatable, and RevisionDiffers for a later revision than the newest one.
    """
    form, number = view.form, revision_of(record.fingerprint)
    if record.fingerprint == form.fingerprint:
        return view.reduced(form.body(record))
    if number <= form.revision.number:
        return view.reduced(form.shown(converted(form, record, anew=False).body))
    if number >= form.resource.revision:
        return view.body(record)
    members = form.resource.revisions[number].with_defaults(exactjson.cut(record.body))
    members = form.resource.chain(form.revision.number, number).down(members, record.removed_fields)
    return view.reduced(exactjson.joined({name: members[name] for name in form.names}))


def shortened(record: Record, oldest: int) -> Record:
    """The record without the removed fields that no revision from the `oldest` one on shows."""
    beside = dict(exactjson.cut(record.removed_fields)) if record.removed_fields else {}
    remaining = {name: text for name, text in beside.items() if int(name.partition(".")[0]) > oldest}
    removed_fields = exactjson.joined(remaining) if remaining else None
    return record if remaining == beside else record._replace(removed_fields=removed_fields)
