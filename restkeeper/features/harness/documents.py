"""The bodies, queries and responses of the routes that control spaces."""

from base64 import b64decode, b64encode
from decimal import Decimal
from typing import Any

from marshmallow import Schema, ValidationError, fields, validates_schema
from marshmallow.validate import Length, OneOf, Range, Regexp

from restkeeper import exactjson
from restkeeper.features.harness.faults import KINDS, RESPONSES, STUB
from restkeeper.features.harness.spaces import AT_ONCE

LONGEST_WAIT = 30.0  # seconds for a delivery or a request
FARTHEST = 100 * 366 * 24 * 3600.0  # seconds by which a clock moves at a time
MOST_LISTED = 500
MOST_STATUSES = 1000  # of the next responses to deliveries
MOST_CONTENT = 256 * 1024  # bytes, or characters, of a response that is declared
MOST_FIELDS = 100  # of a header, or parameters of a query
MOST_VALUE = 8190  # characters of a parameter
WHEN = ("when waited for", AT_ONCE)  # webhooks are sent
OF_RESPONSES = {"status", "detail", "text", "json", "bytes", "content_type", "headers", "retry_after"}
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
_PARTIAL = "Whether objects of a request's content may have further members."
_CHANCE = Range(0, 1, min_inclusive=False, error="must be more than 0, and at most 1")
_TIME = "must be a time with an offset, such as 2026-01-31T12:00:00Z"
_OPTIONAL: dict[str, Any] = {"load_default": None, "allow_none": True}


def _text(about: str = "", *rules: Any, **options: Any) -> fields.String:
    return fields.String(validate=[Length(1, 2000), *rules], metadata={"description": about}, **options)


def _number(low: float, high: float, about: str = "", kind: Any = fields.Integer, **options: Any) -> Any:
    options |= {"strict": True} if kind is fields.Integer else {}
    return kind(validate=Range(low, high), metadata={"description": about}, **options)


def _dict(values: fields.Field[Any], about: str = "", name: Any = None, **options: Any) -> fields.Dict:
    keys, about_it = fields.String(validate=name), {"description": about} if about else {}
    return fields.Dict(keys, values, validate=Length(0, MOST_FIELDS), metadata=about_it, **options)


def _is_value(value: Any) -> None:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | Decimal | None) for one in values) or len(str(value)) > MOST_VALUE:
        raise ValidationError("must be a text, a number, true, false or null, or an array of these; not a long one")


def _is_field(value: Any) -> None:
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            raise ValidationError("must be a text or an array of texts")
        _FIELD(text)


def _headers(**options: Any) -> fields.Dict:
    patterns = fields.String(validate=_FIELD, allow_none=True)
    return _dict(patterns, "Patterns; null: none.", Length(1, 100), load_default=dict, **options)


def _query(**options: Any) -> fields.Dict:
    about = "Parameters, perhaps with others: a value, a pattern with `*`, an array of several; null: none."
    values: Any = fields.Raw(validate=_is_value, allow_none=True)
    return _dict(values, about, Length(1, 100), load_default=dict, **options)


def _json(**options: Any) -> Any:
    return fields.Raw(allow_none=True, metadata={"description": "The value of the content."}, **options)


class _Base64(fields.String):
    def _deserialize(self, value: Any, attr: str | None, data: Any, **options: Any) -> Any:
        try:
            return b64decode(super()._deserialize(value, attr, data, **options), validate=True)
        except ValueError:
            raise ValidationError("must be base64 (RFC 4648, section 4)") from None

    def _serialize(self, value: Any, attr: str | None, obj: Any, **options: Any) -> Any:
        return value if value is None else b64encode(value).decode()


class _Schema(Schema):
    """Names its fields where a name is none of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        names = (field.data_key or name for name, field in self.load_fields.items())
        self.error_messages["unknown"] = f"is none of {', '.join(names)}"


class SeedSchema(_Schema):
    """What a space begins with, or gets."""

    seed = fields.Dict(keys=fields.String(), load_default=dict, metadata={"description": _SEED})


class NewSpaceSchema(SeedSchema):
    """What a space begins with."""

    random = _number(0, 2**53, "Ids and faults follow from it, whatever the clock shows.", **_OPTIONAL)
    webhooks = _text("When they are sent: also when a clock is moved.", OneOf(WHEN), load_default=WHEN[0])


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


class _Wanted(_Schema):
    method, path = _text("A pattern with `*`.", load_default="*"), _text(*_PATH, load_default="*")
    is_partial = fields.Boolean(data_key="partial", load_default=False, metadata={"description": _PARTIAL})


class StubSchema(_Wanted):
    """A response that is none of the service, to requests that it has no route for."""

    request_headers, request_query, request_json = _headers(), _query(), _json()
    status = _number(200, 599, load_default=200)
    text = fields.String(validate=Length(0, MOST_CONTENT), **_OPTIONAL)
    json = fields.Raw(allow_none=True, metadata={"description": "Any value; null is one, too."})
    bytes = _Base64(metadata={"description": "In base64.", "format": "byte"}, **_OPTIONAL)
    content_type = _text("By default that of JSON, of a plain text or of bytes.", _FIELD, **_OPTIONAL)
    headers = _dict(
        fields.Raw(validate=_is_field), "A text, or an array of several of the same name.", _NAME, load_default=dict
    )

    @validates_schema
    def require_one(self, data: dict[str, Any], **_: Any) -> None:
        """Raises ValidationError for two contents, and for a large one."""
        contents = [name for name in ("json", "text", "bytes") if name == "json" in data or data.get(name) is not None]
        if len(contents) > 1:
            raise ValidationError({contents[1]: [f"cannot be with {contents[0]}"]})
        sizes = {name: len(exactjson.dumps(data[name])) for name in ("json", "request_json") if name in data}
        for name, size in (sizes | {"bytes": len(data["bytes"] or b"")}).items():
            if size > MOST_CONTENT:
                raise ValidationError({name: [f"must have at most {MOST_CONTENT} bytes"]})
        if sum(len(value) if isinstance(value, list) else 1 for value in data["headers"].values()) > MOST_FIELDS:
            raise ValidationError({"headers": [f"must be at most {MOST_FIELDS} fields"]})


class NewFaultSchema(StubSchema):
    """A fault and its requests: the first `skip` are left alone; then each has it, until `times` have had it.

    All requests that it is for count, also those that have another fault. With a `probability` only some have it.
    """

    kind = fields.String(required=True, validate=OneOf(list(KINDS)), metadata={"description": _KINDS})
    skip = _number(0, 10**6, load_default=0)
    times = _number(1, 10**6, "null: always.", **_OPTIONAL)
    probability = fields.Float(load_default=1.0, validate=_CHANCE, metadata={"exclusiveMinimum": 0})
    status = _number(200, 599, load_default=503)
    detail = _text("Of the problem.", load_default="a fault of the test harness")
    retry_after = _number(0, 86400, "Seconds.", **_OPTIONAL)
    seconds = _number(0, 60, "Of a delay or a stall.", fields.Float, load_default=1.0)
    seconds_most = _number(0, 60, "A delay is from `seconds` to this.", fields.Float, **_OPTIONAL)
    committed = fields.Boolean(load_default=False)

    @validates_schema(pass_original=True)
    def require_effect(self, data: dict[str, Any], original: dict[str, Any], **_: Any) -> None:
        """Raises ValidationError for fields of a response where there is none."""
        if data["kind"] != "respond" and (names := OF_RESPONSES & original.keys()):
            raise ValidationError({min(names): ["is for respond alone: the fields of requests are request_headers"]})


class NumberSchema(Schema):
    """The number of a declaration, as `unmet` has it."""

    number = fields.Integer()


class UnmetDeclarationSchema(NewFaultSchema):
    """What was declared: a fault, a stub, or responses to deliveries with their `statuses`."""

    kind = fields.String(metadata={"description": f"That of a fault, `{STUB}` or `{RESPONSES}`."})
    statuses = fields.List(fields.Integer())
    number = fields.Integer()
    met = fields.Integer(metadata={"description": "How often it has happened."})
    message = fields.String(metadata={"description": "All of this in words."})


class UnmetSchema(Schema):
    """What has ended and had not happened as often as declared, or not once."""

    unmet = fields.List(fields.Nested(UnmetDeclarationSchema))


class RequestQuery(Schema):
    """Which requests: patterns with `*`."""

    method, path = _text(load_default="*"), _text(*_PATH, load_default="*")
    unmatched = fields.Boolean(load_default=False, metadata={"description": "Only those that no route is for."})
    limit = fields.Integer(load_default=MOST_LISTED, validate=Range(1, MOST_LISTED))


class RequestSchema(Schema):
    """A request, from its arrival on, and its response; without a `status` there is none, or without `ms` not yet.

    `cut` names what is longer than it is here.
    """

    number, at, ms = fields.Integer(), fields.String(), fields.Float(allow_none=True)
    method, path, query, body = fields.String(), fields.String(), fields.String(), fields.String()
    headers, response_headers, response = _dict(fields.String()), _dict(fields.String()), fields.String()
    status, fault, cut = fields.Integer(allow_none=True), fields.String(allow_none=True), fields.List(fields.String())
    matched = fields.Boolean(allow_none=True, metadata={"description": "By a route or a stub."})


class ExpectedSchema(_Wanted):
    """Requests that a test expects: without a number, one or more. A query in the path is a pattern with `*`."""

    headers, query = _headers(attribute="request_headers"), _query(attribute="request_query")
    json = _json(attribute="request_json")
    times = _number(0, 10**6, "Exactly so many.", **_OPTIONAL)
    at_least, at_most = _number(0, 10**6, **_OPTIONAL), _number(0, 10**6, **_OPTIONAL)
    within = _number(0, LONGEST_WAIT, "Seconds to wait until it is so.", fields.Float, load_default=0.0)


class VerdictSchema(Schema):
    """Whether there were such requests: then the `message` is null, and else it says what there was."""

    message = fields.String(allow_none=True)
    numbers = fields.List(fields.Integer(), metadata={"description": "Of the requests that are as expected."})


class DeliveryQuery(Schema):
    """Which deliveries, and how many seconds to wait for them."""

    type = _text(load_default="*")
    within = _number(0, LONGEST_WAIT, kind=fields.Float, load_default=0.0)
    times = _number(1, MOST_LISTED, "How many are waited for.", load_default=1)
    after = _number(0, 2**53, "Only those with a higher number.", load_default=0)


class DeliverySchema(Schema):
    """A message to a webhook, and the status of the response."""

    type, url, headers, body = fields.String(), fields.String(), _dict(fields.String()), fields.Raw()
    number, status = fields.Integer(), fields.Integer(allow_none=True)


class ResponsesSchema(_Schema):
    """The statuses of the next responses to deliveries; after them it is 200 again."""

    statuses = fields.List(_number(200, 599), validate=Length(0, MOST_STATUSES), required=True)
    number = fields.Integer(dump_only=True)
