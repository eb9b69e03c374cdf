"""The routes that control spaces: below /__harness__, with an OpenAPI document of their own."""

import re
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, request
from marshmallow import Schema, ValidationError, fields, validates_schema
from marshmallow.validate import Length, OneOf, Range, Regexp

from restkeeper.errors import Conflict, NotFound
from restkeeper.features.harness.faults import KINDS, Fault
from restkeeper.features.harness.seeding import seed
from restkeeper.features.harness.spaces import AT_ONCE, Space, Spaces
from restkeeper.web import exactjson
from restkeeper.web.application import SERVE
from restkeeper.web.auth import PUBLIC
from restkeeper.web.operations import BODY_PROBLEMS, Body, read_body, returns, takes

LONGEST_WAIT = 30.0  # seconds for a delivery
FARTHEST = 100 * 366 * 24 * 3600.0  # seconds by which a clock moves at a time
MOST_LISTED = 500
MOST_STATUSES = 1000  # of the next responses to deliveries
MOST_CONTENT = 256 * 1024  # bytes, or characters, of a response that is declared
MOST_FIELDS = 100  # of a header
OF_RESPONSES = {"status", "detail", "text", "json", "content_type", "headers", "retry_after"}
_SEED = 'Items by the name of their collection: `{"users": [{…}], "settings": {…}}`.'
_OF_SERVER = (
    "connection|content-length|keep-alive|proxy-authenticate|proxy-authorization|server|te|trailer|trailers|"
    "transfer-encoding|upgrade"
)
_NAME = Regexp(
    rf"(?i)(?!(?:{_OF_SERVER})\Z)[!#$%&'*+.^_`|~0-9a-z-]{{1,100}}\Z",
    error=f"must be the name of a header field, and none of {_OF_SERVER.replace('|', ', ')}",
)
_FIELD = Regexp(r"[\t -~\x80-\xff]{0,8190}\Z", error="takes at most 8,190 characters of Latin-1, without a line break")
_KINDS = "\n".join(f"- `{name}`: {about}" for name, about in KINDS.items())
_PATH = ("A path in any version, a pattern with `*`.", Regexp("^[/*]", error="must begin with / or *"))
_TIME = "must be a time with an offset, such as 2026-01-31T12:00:00Z"
_OPTIONAL: dict[str, Any] = {"load_default": None, "allow_none": True}


def _text(about: str = "", *rules: Any, **options: Any) -> fields.String:
    return fields.String(validate=[Length(1, 2000), *rules], metadata={"description": about}, **options)


def _number(low: float, high: float, about: str = "", kind: Any = fields.Integer, **options: Any) -> Any:
    options |= {"strict": True} if kind is fields.Integer else {}
    return kind(validate=Range(low, high), metadata={"description": about}, **options)


def _choice(default: str, other: str, about: str) -> fields.String:
    return _text(about, OneOf([default, other]), load_default=default)


def _texts(name: Any = None, value: Any = None, **options: Any) -> fields.Dict:
    keys, values = fields.String(validate=name), fields.String(validate=value)
    return fields.Dict(keys, values, validate=Length(0, MOST_FIELDS), **options)


class _Schema(Schema):
    """Names its fields where a name is none of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.error_messages["unknown"] = f"is none of {', '.join(self.load_fields)}"


class SeedSchema(_Schema):
    """What a space begins with, or gets."""

    seed = fields.Dict(keys=fields.String(), load_default=dict, metadata={"description": _SEED})


class NewSpaceSchema(SeedSchema):
    """What a space begins with."""

    random = _number(0, 2**53, "Ids and faults follow from it, whatever the clock shows.", **_OPTIONAL)
    webhooks = _choice("when waited for", AT_ONCE, "When they are sent: also when a clock is moved.")
    webhook_time = _choice("real", "space", "The time in the signatures that endpoints on this machine get.")


_NEW_SPACE = NewSpaceSchema()


class SpaceSchema(Schema):
    """A space: `url` is its service, `control` is where it is controlled."""

    id, url, control = fields.String(), fields.String(), fields.String()


class SnapshotSchema(_Schema):
    """A snapshot."""

    name = _text("Its name.", required=True)


class ClockSchema(_Schema):
    """The time of a space: to change it, the time or the seconds to `advance`, and whether it stands still."""

    now = fields.AwareDateTime(error_messages={"invalid": _TIME, "invalid_awareness": _TIME})
    advance = _number(0, FARTHEST, "Seconds.", fields.Float, load_only=True)
    frozen = fields.Boolean()


class StubSchema(_Schema):
    """A response that is none of the service, to requests that it has no route for."""

    method = _text("A pattern with `*`.", load_default="*")
    path = _text(*_PATH, load_default="*")
    request_headers = _texts(Length(1, 100), _FIELD, load_default=dict, metadata={"description": "Patterns."})
    status = _number(200, 599, load_default=200)
    text = fields.String(validate=Length(0, MOST_CONTENT), **_OPTIONAL)
    json = fields.Raw(metadata={"description": "Any value but null."}, **_OPTIONAL)
    content_type = _text("By default `application/json`, or `text/plain` for a text.", _FIELD, **_OPTIONAL)
    headers = _texts(_NAME, _FIELD, load_default=dict)

    @validates_schema
    def require_one(self, data: dict[str, Any], **_: Any) -> None:
        """Raises ValidationError for two contents, and for a large one."""
        if data["json"] is not None and data["text"] is not None:
            raise ValidationError({"text": ["cannot be with json"]})
        if len(exactjson.dumps(data["json"])) > MOST_CONTENT:
            raise ValidationError({"json": [f"must have at most {MOST_CONTENT} bytes"]})


class NewFaultSchema(StubSchema):
    """A fault and its requests: the first `skip` are left alone, then `times` have it, each with a `probability`."""

    kind = fields.String(required=True, validate=OneOf(list(KINDS)), metadata={"description": _KINDS})
    skip = _number(0, 10**6, load_default=0)
    times = _number(1, 10**6, "null: always.", **_OPTIONAL)
    probability = _number(0, 1, kind=fields.Float, load_default=1.0)
    status = _number(200, 599, load_default=503)
    detail = _text("Of the problem.", load_default="a fault of the test harness")
    retry_after = _number(0, 86400, "Seconds.", **_OPTIONAL)
    seconds = _number(0, 60, "Of a delay or a stall.", fields.Float, load_default=1.0)
    seconds_most = _number(0, 60, "A delay is from `seconds` to this.", fields.Float, **_OPTIONAL)
    committed = fields.Boolean(load_default=False)
    met = fields.Integer(dump_only=True, metadata={"description": "How many requests it was for."})

    @validates_schema(pass_original=True)
    def require_effect(self, data: dict[str, Any], original: dict[str, Any], **_: Any) -> None:
        """Raises ValidationError for fields of a response where there is none."""
        if data["kind"] != "respond" and (given := OF_RESPONSES & original.keys()):
            raise ValidationError({min(given): ["is for respond alone: the fields of requests are request_headers"]})


class RequestQuery(Schema):
    """Which requests: patterns with `*`."""

    method, path = _text(load_default="*"), _text(*_PATH, load_default="*")
    unmatched = fields.Boolean(load_default=False, metadata={"description": "Only those that no route is for."})
    limit = fields.Integer(load_default=MOST_LISTED, validate=Range(1, MOST_LISTED))


class RequestSchema(Schema):
    """A request and its response; without a `status` there was none. `cut` names what is longer than it is here."""

    number, at, ms = fields.Integer(), fields.String(), fields.Float()
    method, path, query, headers, body = fields.String(), fields.String(), fields.String(), _texts(), fields.String()
    status, response_headers, response = fields.Integer(allow_none=True), _texts(), fields.String()
    matched, fault, cut = fields.Boolean(), fields.String(allow_none=True), fields.List(fields.String())


class UnmetSchema(Schema):
    """The faults of what has ended that no request has matched."""

    unmet = fields.List(fields.Nested(NewFaultSchema))


class DeliveryQuery(Schema):
    """Which deliveries, and how many seconds to wait for the first."""

    type = _text(load_default="*")
    within = _number(0, LONGEST_WAIT, kind=fields.Float, load_default=0.0)


class DeliverySchema(Schema):
    """A message to a webhook; `verified` is whether a receiver accepts its signature, and the time in it."""

    type, url, headers, body = fields.String(), fields.String(), _texts(), fields.Raw()
    verified, status = fields.Boolean(), fields.Integer(allow_none=True)


class ResponsesSchema(_Schema):
    """The statuses of the next responses to deliveries; after them it is 200 again."""

    statuses = fields.List(_number(200, 599), validate=Length(0, MOST_STATUSES), required=True)


class Control:
    """The handlers. Whoever reaches the server may call them."""

    needs = PUBLIC

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    def blueprint(self) -> Blueprint:
        """The routes."""
        routes = Blueprint("spaces", __name__, url_prefix="/spaces")
        for rule, method, view in (
            ("", "POST", self.create_space),
            ("/<id>", "DELETE", self.drop_space),
            ("/<id>/reset", "POST", self.reset_space),
            ("/<id>/seed", "POST", self.seed_space),
            ("/<id>/snapshots", "POST", self.take_snapshot),
            ("/<id>/restore", "POST", self.restore_snapshot),
            ("/<id>/clock", "PATCH", self.set_clock),
            ("/<id>/faults", "POST", self.add_fault),
            ("/<id>/stubs", "POST", self.add_stub),
            ("/<id>/faults", "GET", self.list_unmet_faults),
            ("/<id>/faults", "DELETE", self.clear_faults),
            ("/<id>/requests", "GET", self.list_requests),
            ("/<id>/deliveries", "GET", self.list_deliveries),
            ("/<id>/responses", "PUT", self.set_responses),
        ):
            routes.add_url_rule(rule, view_func=view, methods=[method])
        return routes

    @takes(body=Body(_NEW_SPACE))
    @returns(SpaceSchema, Conflict, NotFound, *BODY_PROBLEMS, status=201)
    def create_space(self) -> dict[str, str]:
        """Create a space: a service of its own, at a port of its own. The body can be left out."""
        is_empty = not request.content_length and "HTTP_TRANSFER_ENCODING" not in request.environ
        body = _NEW_SPACE.load({}) if is_empty else read_body(_NEW_SPACE)
        data, random = body.pop("seed"), body.pop("random")
        space = self._spaces.create(random, request.environ.get(SERVE), **body)
        try:
            if data:
                self._seed(space, data)
        except BaseException:
            self._spaces.drop(space)
            raise
        host = re.sub(r":\d+$", "", request.host) + f":{space.port}" if space.port else request.host
        url, control = f"{request.scheme}://{host}", f"{request.root_url}spaces/{space.id}"
        return {"id": space.id, "url": url, "control": control}

    @returns(UnmetSchema, NotFound, Conflict)
    def drop_space(self, id: str) -> dict[str, Any]:
        """End a space."""
        self._spaces.drop(space := self._spaces.find(id))
        return {"unmet": space.faults.unmet}

    @returns(UnmetSchema, NotFound)
    def reset_space(self, id: str) -> dict[str, Any]:
        """Make a space as new, and empty. Snapshots stay."""
        faults = (space := self._spaces.find(id)).faults
        self._spaces.renew(space)
        return {"unmet": faults.unmet}

    @takes(body=SeedSchema)
    @returns(NotFound, Conflict)
    def seed_space(self, id: str, body: dict[str, Any]) -> dict[str, int]:
        """Add items, all or none. The response has how many of each collection."""
        return self._seed(self._spaces.find(id), body["seed"])

    def _seed(self, space: Space, data: dict[str, Any]) -> dict[str, int]:
        with self._spaces.using(space) as instance:
            before, done = instance.store.last_event(), seed(instance.service, data)
            if space.catcher.since == before:
                space.catcher.since = instance.store.last_event()
            return done

    @returns(SnapshotSchema, NotFound, Conflict, status=201)
    def take_snapshot(self, id: str) -> dict[str, str]:
        """Keep the data of a space as they are."""
        return {"name": self._spaces.find(id).snapshot()}

    @takes(body=SnapshotSchema)
    @returns(SnapshotSchema, NotFound)
    def restore_snapshot(self, id: str, body: dict[str, Any]) -> dict[str, str]:
        """Have the data of a snapshot again; the clock, faults and requests stay."""
        self._spaces.find(id).restore(body["name"])
        return body

    @takes(body=ClockSchema)
    @returns(ClockSchema, NotFound)
    def set_clock(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Read, set, freeze or advance the time of a space. What webhooks get until then is sent."""
        space = self._spaces.find(id)
        with self._spaces.using(space) as instance:
            clock = instance.clock
            moment = body["now"].timestamp() if "now" in body else clock.time()
            if body:
                space.catcher.move_clock(moment + body.get("advance", 0.0), frozen=body.get("frozen"))
            return {"now": datetime.fromtimestamp(clock.time(), UTC), "frozen": clock.frozen is not None}

    @takes(body=NewFaultSchema)
    @returns(NotFound, Conflict)
    def add_fault(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Add a fault. A request meets all of its delays until the first fault of another kind."""
        self._spaces.find(id).faults.add(body)
        return {}

    @takes(body=StubSchema)
    @returns(NotFound, Conflict)
    def add_stub(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Respond where the service has no route, until a reset; to requests of several stubs by the last one."""
        self._spaces.find(id).faults.add_stub(body)
        return {}

    @returns(NewFaultSchema(many=True), NotFound)
    def list_unmet_faults(self, id: str) -> list[Fault]:
        """The faults that no request has matched, also those that were cleared: most are in the wrong place."""
        return self._spaces.find(id).faults.unmet

    @returns(NotFound)
    def clear_faults(self, id: str) -> dict[str, Any]:
        """Have no faults any more."""
        self._spaces.find(id).faults.clear()
        return {}

    @takes(query=RequestQuery)
    @returns(RequestSchema(many=True), NotFound)
    def list_requests(self, id: str, query: dict[str, Any]) -> list[dict[str, Any]]:
        """The last requests to a space, the oldest first."""
        limit = query.pop("limit")
        return list(self._spaces.find(id).journal.find(**query))[-limit:]

    @takes(query=DeliveryQuery)
    @returns(DeliverySchema(many=True), NotFound)
    def list_deliveries(self, id: str, query: dict[str, Any]) -> list[dict[str, Any]]:
        """Send what webhooks are to get, and return what they got, as soon as there is one."""
        space = self._spaces.find(id)
        with self._spaces.using(space) as instance:
            found = space.catcher.wait(query["type"], query["within"], lambda: space.instance is not instance)
        self._spaces.find(id)  # it may have been dropped meanwhile
        return found

    @takes(body=ResponsesSchema)
    @returns(ResponsesSchema, NotFound)
    def set_responses(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Give the responses to the next deliveries, in place of the endpoints."""
        space = self._spaces.find(id)
        with self._spaces.using(space):
            space.catcher.respond(body["statuses"])
        return body
