"""Webhooks: endpoints that are sent events by HTTP (Standard Webhooks 1.0.0). Only admins read and create them.

`deliverer.py` sends. A secret is returned once, and stored because deliveries are signed with it.
"""

import logging
import secrets
from base64 import b64encode
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import urlsplit

from flask import Blueprint

from restkeeper import exactjson
from restkeeper.clock import rfc3339, uuid7
from restkeeper.errors import InsufficientStorage, InvalidQuery, NotFound, PreconditionFailed
from restkeeper.exactjson import JsonObject, require_none
from restkeeper.features.events.types import DISABLED, known_types
from restkeeper.features.webhooks.addresses import is_address, is_public
from restkeeper.net import is_loopback
from restkeeper.parsing import whole
from restkeeper.resources.call import of_program
from restkeeper.resources.changes import Answer, Command, Domain, Operation, Unit
from restkeeper.resources.items import CollectionReader
from restkeeper.resources.parameters import Reader, one_of
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import StoredView
from restkeeper.resources.writes import CommandUnit
from restkeeper.schemas.fields import Lifecycle, ListOf, Status, Text, Url
from restkeeper.schemas.item import ItemSchema
from restkeeper.service import Service
from restkeeper.storage.base import Transaction
from restkeeper.storage.deliveries import Deliveries, LogEntry, Secret, read_deliveries
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Index, Record
from restkeeper.storage.transactions import Event
from restkeeper.web.application import Reply
from restkeeper.web.bodies import JSON, MERGE_PATCH, require_acceptable
from restkeeper.web.calls import arguments
from restkeeper.web.handlers import UNCACHED
from restkeeper.web.operations import (
    CHANGE_PROBLEMS,
    COMPARED,
    CONDITIONS,
    IDEMPOTENT,
    ITEM_CONDITIONS,
    WRITE_PROBLEMS,
    Body,
    Parameter,
    Result,
    returns,
    takes,
)
from restkeeper.web.pagination import link_header, target_with
from restkeeper.web.secret_items import ROTATED, STORED_NEW_WITH_SECRET, SecretItemHandlers

LIFECYCLE = Lifecycle(
    "active",
    {"active": ("paused",), "paused": ("active",), "disabled": ("active", "paused")},  # only the service disables
)


class WebhookSchema(ItemSchema):
    """An endpoint and the events to send there. Its secret is returned only once, when the webhook is created."""

    url = Url(
        required=True,
        metadata={
            "description": "URL to POST events to: https and a public address, unless the service allows others.",
            "examples": ["https://shop.example.org/hooks"],
        },
    )
    types = ListOf(
        Text(1, 200),
        low=1,
        load_default=lambda: ["*"],
        metadata={
            "description": "Types of events: `*` (of all collections), all of a kind (`product.*`), or single types.",
            "examples": [["product.*"]],
        },
    )
    api_version = Text(
        2,
        5,
        load_default="v1",
        metadata={
            "description": "Version of the API in whose form events are sent; by default that of the request's path."
        },
    )
    scopes = ListOf(
        Text(1, 200),
        load_default=list,
        metadata={"description": "Scopes of private fields: events have only those fields whose scope is here."},
    )
    description = Text(0, 200, load_default="", metadata={"description": "What it is for."})
    status = Status(
        LIFECYCLE,
        metadata={
            "description": "Nothing is sent to a webhook that is `paused`, or that the service has `disabled`. When "
            "it is `active` again, it continues where it stopped, with the events that are still stored."
        },
    )


WEBHOOKS = Resource(
    name="webhooks",
    singular="webhook",
    schema=WebhookSchema,
    indexes=(Index("created_at"),),
    search=("url", "description"),
    events=False,
)
STATES = ("pending", "delivered", "failed")  # of a delivery
PARAMETERS = ("state", "limit", "cursor")

PING = "webhook.ping"
PINGS = "_pings"  # the collection of pings, which no request can name
GRACE_SECONDS = 24 * 3600  # for which the former secret signs beside the new one
SECRET_BYTES = 32
MOST_SECRETS = 10  # that sign at a time: a header has room for no more than some dozens

DELIVERY = Parameter(
    "delivery", lambda webhooks: {"type": "integer", "minimum": 1, "maximum": 10**18 - 1}, "Id of the delivery."
)
DELIVERIES = (
    Parameter("state", lambda webhooks: {"type": "string", "enum": list(STATES)}, "Only deliveries in this state."),
    "Limit",
    Parameter(
        "cursor",
        lambda webhooks: {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
        "Where the page begins: from a Link header.",
    ),
)
ONE = {JSON: "WebhookDelivery"}
DELIVERIES_FOUND = Result("The page.", ONE, ("Link",), at_most=0)
DELIVERED = Result("The delivery.", ONE)
OF_DELIVERY = {"id": "$request.path.id", "delivery": "$response.body#/id"}
QUEUED = Result(
    "The delivery, to be sent once.",
    ONE,
    links={"read_item_delivery": OF_DELIVERY, "redeliver_to_item": OF_DELIVERY},
)
QUEUE_PROBLEMS = (NotFound, InsufficientStorage)

_log = logging.getLogger("restkeeper")
_delivery_number = whole(1, 2**63 - 1)


def new_secret() -> str:
    """A secret to sign with, as Standard Webhooks writes it."""
    return "whsec_" + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def disable_webhook(webhooks: StoredView, transaction: Transaction, id: str, reason: str, now: float) -> None:
    """Send nothing more to a webhook (`now` in seconds since 1970), and record that as an event."""
    unit = Unit(Domain(), transaction, of_program())
    try:
        record = transaction.read(WEBHOOKS.name, id)
    except RecordNotFound:
        return
    webhook = exactjson.loads(webhooks.body(record))
    if webhook["status"] == "disabled":
        return
    changed = _changed(webhooks, record, rfc3339(now), status="disabled")
    unit.put_record(WEBHOOKS.name, changed)
    data = exactjson.dumps(exactjson.loads(changed.body) | {"reason": reason})
    transaction.add_event(Event(DISABLED, WEBHOOKS.name, id, changed.updated_at, data))
    _log.warning("webhook %s is disabled: %s", id, reason)


def _changed(webhooks: StoredView, record: Record, now: str, **fields: Any) -> Record:
    """A webhook with other values in fields that need no check."""
    body = exactjson.dumps(exactjson.loads(record.body) | fields)
    return webhooks.touched(record._replace(body=body), now=now)


class WebhookHandlers(SecretItemHandlers):
    """The handlers of /api/VERSION/webhooks."""

    secret: ClassVar = {
        "type": "string",
        "description": "What deliveries are signed with. Shown this once.",
        "maxLength": 50,
        "pattern": "^whsec_[A-Za-z0-9+/]{43}=$",
    }

    def __init__(self, service: Service, version: str) -> None:
        self._versions = [served.name for served in service.served]
        self._types = known_types(service.resources)
        self._config, self._webhooks = service.config, service.of_features[WEBHOOKS.name]
        self._scopes = sorted({scope for resource in service.resources for scope in resource.reading_scopes})
        choices = {"types": self._types, "api_version": self._versions, "scopes": self._scopes}
        defaults = {"api_version": version}
        super().__init__(service.items_of(self._webhooks, choices=choices, defaults=defaults), caching=UNCACHED)

    def blueprint(self) -> Blueprint:
        """The routes, relative to wherever webhooks are mounted."""
        routes = super().blueprint()
        routes.add_url_rule("/<id>/rotate", view_func=self.rotate_item, methods=["POST"])
        routes.add_url_rule("/<id>/ping", view_func=self.ping_item, methods=["POST"])
        routes.add_url_rule("/<id>/deliveries", view_func=self.list_item_deliveries, methods=["GET"])
        routes.add_url_rule("/<id>/deliveries/<delivery>", view_func=self.read_item_delivery, methods=["GET"])
        redeliver = "/<id>/deliveries/<delivery>/redeliver"
        routes.add_url_rule(redeliver, view_func=self.redeliver_to_item, methods=["POST"])
        return routes

    def make(self, sent: JsonObject, now: str) -> tuple[Record, str]:
        record = self._webhooks.new_record({**self.items.defaults, **sent}, id=uuid7(), now=now)
        webhook = exactjson.loads(record.body)
        faults = self._faults(webhook)
        if webhook["status"] == "disabled":
            faults.append({"pointer": "#/status", "detail": "must be one of: active, paused"})
        require_none(faults)
        return record, new_secret()

    def renewed(self, record: Record, now: str) -> tuple[Record, str]:
        return _changed(self._webhooks, record, now), new_secret()

    def store(self, unit: Unit, before: Record | None, record: Record, secret: str) -> None:
        now, deliveries, secrets = self.items.domain.clock.time(), Deliveries(unit.transaction), [Secret(secret)]
        if before is None:
            unit.write(self._webhooks, None, record)
            deliveries.subscribe(record.id, secrets)
        else:  # the former secret signs, too, until its receiver has the new one
            newest, *older = deliveries.secrets(record.id)
            secrets += [Secret(newest.value, now + GRACE_SECONDS), *(old for old in older if (old.until or 0) > now)]
            unit.write(self._webhooks, before, record)
            deliveries.set_secrets(record.id, secrets[:MOST_SECRETS])

    def forget(self, unit: Unit, id: str) -> None:
        Deliveries(unit.transaction).unsubscribe(id)

    @takes(*CONDITIONS, IDEMPOTENT, COMPARED, body=Body("New{}"))
    @returns(STORED_NEW_WITH_SECRET, *WRITE_PROBLEMS, PreconditionFailed)
    def create_item(self) -> Reply:
        """Create one. Only this response has its secret."""
        return self.save_with_secret()

    @takes(IDEMPOTENT, COMPARED, *ITEM_CONDITIONS)
    @returns(ROTATED, *CHANGE_PROBLEMS, InsufficientStorage)
    def rotate_item(self, id: str) -> Reply:
        """Give it a new secret. Only this response has it."""
        return self.save_with_secret(id)

    def replace_item(self, id: str) -> Reply:
        """Replace a webhook except its secret: optional fields that are left out take their defaults."""
        return self.change("replace", id, JSON, how=Operation(self._replace))

    def merge_item(self, id: str) -> Reply:
        """Change some fields of a webhook (JSON Merge Patch, RFC 7396): `status` pauses and resumes it."""
        return self.change("merge", id, MERGE_PATCH, JSON, how=Operation(self._merge))

    def delete_item(self, id: str) -> Reply:
        """Delete a webhook: nothing more is sent to it. The response is the webhook as it last was."""
        return self.delete_with_secret(id)

    @takes(IDEMPOTENT)
    @returns(QUEUED, *QUEUE_PROBLEMS)
    def ping_item(self, id: str) -> Reply:
        """Send a `webhook.ping` event, once, whatever the webhook's status; the response is its delivery."""

        def make(deliveries: Deliveries, record: Record) -> Event:
            return Event(PING, PINGS, id, rfc3339(self.items.domain.clock.time()), self._webhooks.body(record))

        return self._queue(id, make)

    @takes(DELIVERY, IDEMPOTENT)
    @returns(QUEUED, *QUEUE_PROBLEMS)
    def redeliver_to_item(self, id: str, delivery: str) -> Reply:
        """Send the event of a delivery again, once, whatever the webhook's status; the response is the new delivery."""
        return self._queue(id, lambda deliveries, record: deliveries.find_delivery(id, _number(delivery)).event)

    @takes(*DELIVERIES)
    @returns(DELIVERIES_FOUND, NotFound, InvalidQuery)
    def list_item_deliveries(self, id: str) -> Reply:
        """List the deliveries of a webhook, the newest first, each with the result of its last attempt."""
        require_acceptable(JSON)
        reader = Reader(arguments())
        reader.only(PARAMETERS, "this list")
        before = reader.one("cursor", _delivery_number, None)
        limit = reader.one("limit", whole(1, self._config.page_limit_max), self._config.page_limit)
        state = reader.one("state", one_of(STATES), None)
        reader.finish()
        self.items.store.read(self.name, id)
        entries = read_deliveries(self.items.store, id, before, limit + 1, state)
        reply = _reply(exactjson.dumps([_represent(entry) for entry in entries[:limit]]))
        links = {"first": target_with("cursor", None)}
        if len(entries) > limit:
            links["next"] = target_with("cursor", str(entries[limit - 1].id))
        reply.headers["Link"] = link_header(links)
        return reply

    @takes(DELIVERY)
    @returns(DELIVERED, NotFound)
    def read_item_delivery(self, id: str, delivery: str) -> Reply:
        """Read one delivery of a webhook."""
        require_acceptable(JSON)
        number = _number(delivery)
        self.items.store.read(self.name, id)
        for entry in read_deliveries(self.items.store, id, number + 1, 1):
            if entry.id == number:
                return _reply(exactjson.dumps(_represent(entry)))
        raise NotFound("there is no such delivery")

    def _queue(self, id: str, event: Callable[[Deliveries, Record], str | Event]) -> Reply:
        """Queue a delivery by hand, once for each idempotency key: of the event, new or by its id, that is returned."""
        require_acceptable(JSON)

        def queue(unit: CommandUnit, _: CollectionReader, webhook: Record, body: None) -> Answer:
            deliveries = Deliveries(unit.transaction)
            number = deliveries.queue_manually(id, event(deliveries, webhook))
            return Answer(exactjson.dumps(_represent(deliveries.find_delivery(id, number))))

        command = Command("act", self.name, id, action=Operation(queue))
        return self.execute([command], self.items.domain.once(None, lambda answer: _reply(answer.body)))

    def _replace(self, unit: CommandUnit, to: CollectionReader, before: Record, sent: JsonObject) -> Answer:
        """Replace a webhook, which stays at its version unless another one is sent."""
        pinned = exactjson.decoded(self._webhooks.body(before))["api_version"]
        replace, body = self._webhooks.replace, {"api_version": pinned} | sent
        return self._change(unit, to, before, replace(before, body, now=unit.now(), limits=unit.domain.limits))

    def _merge(self, unit: CommandUnit, to: CollectionReader, before: Record, patch: JsonObject) -> Answer:
        unset = {name: value for name, value in self.items.defaults.items() if patch.get(name, value) is None}
        merge, body = self._webhooks.merge, patch | unset
        return self._change(unit, to, before, merge(before, body, now=unit.now(), limits=unit.domain.limits))

    def _change(self, unit: CommandUnit, to: CollectionReader, before: Record, after: Record) -> Answer:
        """Change a webhook. One that was valid by other settings can be paused as it is."""
        was, now = (exactjson.loads(record.body) for record in (before, after))
        is_changed = any(was[name] != now[name] for name in ("url", "types", "api_version", "scopes"))
        if after is not before and (is_changed or now["status"] == "active"):
            require_none(self._faults(now, pinned=was["api_version"]))
        unit.write_item(to, before, after)
        if (was["url"], was["status"]) != (now["url"], now["status"]):  # which may have repaired it: send at once
            Deliveries(unit.transaction).resume(before.id, self.items.domain.clock.time())
        return to.answer(after)

    def _faults(self, webhook: JsonObject, *, pinned: str = "") -> list[JsonObject]:
        """What is wrong with a webhook beyond its schema. The version that it has `pinned` may be retired."""
        faults = []
        parts = urlsplit(webhook["url"])
        host = parts.hostname or ""
        unless = "unless WEBHOOK_ALLOW_PRIVATE is set"
        if not self._config.webhook_allow_private:  # as far as it is known without resolving the name
            if parts.scheme != "https":
                faults.append({"pointer": "#/url", "detail": f"must begin with https://, {unless}"})
            elif is_loopback(host) or (is_address(host) and not is_public(host)):
                faults.append({"pointer": "#/url", "detail": f"must be a public address, {unless}"})
        if webhook["api_version"] not in (pinned, *self._versions):
            faults.append({"pointer": "#/api_version", "detail": f"must be one of: {', '.join(self._versions)}"})
        for name, choices in (("types", self._types), ("scopes", self._scopes)):
            wrong = [n for n, value in enumerate(webhook[name]) if value not in choices]
            detail = f"must be one of: {', '.join(choices)}" if choices else "no field needs a scope to be read"
            faults += [{"pointer": f"#/{name}/{n}", "detail": detail} for n in wrong]
        return faults


def _number(text: str) -> int:
    """The number of a delivery. Raises NotFound."""
    try:
        return _delivery_number(text)
    except ValueError:
        raise NotFound("there is no such delivery") from None


def _reply(body: bytes) -> Reply:
    return Reply(body, content_type=JSON, headers={"Cache-Control": UNCACHED})


def _represent(entry: LogEntry) -> JsonObject:
    """The JSON object of a delivery."""
    return {
        "id": entry.id,
        "event": entry.event,
        "type": entry.type,
        "state": entry.state,
        "attempts": entry.attempts,
        "next_attempt_at": None if not entry.due else rfc3339(entry.due),
        "attempted_at": None if entry.attempted is None else rfc3339(entry.attempted),
        "response_status": entry.status,
        "latency_ms": None if entry.seconds is None else round(entry.seconds * 1000, 1),
        "response_excerpt": entry.excerpt,
    }
