"""Items of former revisions: as the newest one has them, and as callers see what was stored then."""

from restkeeper import exactjson
from restkeeper.resources.evolution import revision_of
from restkeeper.resources.item import ItemForm
from restkeeper.resources.views import View
from restkeeper.storage.interface import Record


def converted(form: ItemForm, record: Record, *, anew: bool = True) -> Record:
    """A record in the form of a revision; one of an earlier revision is converted by the steps from it.

    Computed values that it has are not computed `anew`, if so. Raises Untranslatable, and RevisionDiffers for one of a
    later revision.
    """
    own, number, revisions = form.revision, revision_of(record.fingerprint), form.resource.revisions
    if number > own.number or number not in revisions:
        return form.present(record)
    stored = form.stored_members(record)
    members, removed = stored, record.removed
    if number < own.number:
        members, removed = form.resource.chain(number, own.number).up(revisions[number].with_defaults(stored), removed)
    of_server = {name: text for name, text in stored.items() if name in own.of_server}
    computed = own.computed if anew else own.computed - members.keys()
    return form.with_members(record._replace(removed=removed), {**members, **of_server}, computed)


def former_body(view: View, record: Record) -> bytes:
    """The representation of a record of any revision that there are steps from, as that of an event can be.

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
    members = form.resource.chain(form.revision.number, number).down(members, record.removed)
    return view.reduced(exactjson.joined({name: members[name] for name in form.names}))


def shortened(record: Record, oldest: int) -> Record:
    """The record without the removed fields that no revision from the `oldest` one on shows."""
    beside = dict(exactjson.cut(record.removed)) if record.removed else {}
    kept = {name: text for name, text in beside.items() if int(name.partition(".")[0]) > oldest}
    return record if kept == beside else record._replace(removed=exactjson.joined(kept) if kept else None)
