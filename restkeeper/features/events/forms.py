"""The data of events in the form of a version of the API: an event is stored in the form of its time."""

from restkeeper.errors import NotConvertible
from restkeeper.service import Service
from restkeeper.storage.contract import Record
from restkeeper.storage.outbox import StoredEvent
from restkeeper.web import exactjson


class EventForms:
    """The forms of all collections with events, in one version."""

    def __init__(self, service: Service, version: str) -> None:
        self._forms = {each.name: service.hooks.form(each, version) for each in service.resources if each.events}
        stored = {each.name: each.fingerprint for each in service.resources}
        self._unchanged = {(name, stored[name]) for name, form in self._forms.items() if form.is_stored}

    @property
    def fingerprint(self) -> str:
        """A text that changes with the representation of any of them."""
        return ",".join([form.fingerprint for form in self._forms.values()])

    def converted(self, event: StoredEvent) -> StoredEvent:
        """The event with its data in this form: without the fields whose values have no equivalent in it."""
        if (event.collection, event.fingerprint) in self._unchanged or event.collection not in self._forms:
            return event
        record = Record("", 0, event.at, event.fingerprint, event.data, older=event.older)
        form = self._forms[event.collection]
        try:
            return event._replace(data=form.body(record))
        except NotConvertible as error:
            members = exactjson.cut(error.rest.body)
            return event._replace(
                data=exactjson.joined({name: members[name] for name in form.names if name in members})
            )
