"""What a handler takes and returns, declared beside it. The OpenAPI document is made of these declarations:

    @needs("write")
    @takes("IfMatch", IDEMPOTENT, body=Body("{}Input"))
    @returns(STORED_NEW, Duplicate, ValidationFailed)
    def create_item(self) -> Reply:

A name is of a component of the document; "{}" in it is the kind of the handler's collection: "{}Page" is "ProductPage".
A schema is such a name, a marshmallow schema, or a JSON Schema. A handler that overrides another has the other's
declaration, unless it has its own.

A service's own views name schemas of marshmallow: `@takes(query=StockQuery)`, `@returns(StockSchema, NotFound)`.

A feature adds to the declarations of others by a `Contribution`.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar

from apispec.core import Components
from flask import current_app, request
from marshmallow import EXCLUDE, Schema, ValidationError, fields, validate
from werkzeug.wrappers import Response

from restkeeper.errors import (
    BadRequest,
    BodyTooLarge,
    Duplicate,
    Forbidden,
    HeadersTooLarge,
    InsufficientStorage,
    InternalError,
    InvalidJson,
    InvalidQuery,
    NotAcceptable,
    NotFound,
    PreconditionFailed,
    Problem,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
    UriTooLong,
    ValidationFailed,
)
from restkeeper.exactjson import faults_in
from restkeeper.resources.filters import MAX_VALUES, value_of
from restkeeper.resources.parameters import Reader
from restkeeper.schemas.prepared import loaded
from restkeeper.storage.interface import Field, Kind
from restkeeper.web.auth import OWN
from restkeeper.web.bodies import JSON, read_object, require_acceptable
from restkeeper.web.calls import arguments

JsonSchema = dict[str, Any]
AnySchema = type[Schema] | Schema
SchemaOf = str | AnySchema | JsonSchema
View = TypeVar("View", bound=Callable[..., Any])

# Parameters and problems that many operations have in common.
CONDITIONS = ("IfMatch", "IfNoneMatch")
ITEM_CONDITIONS = (*CONDITIONS, "IfUnmodifiedSince")
EVERY_PROBLEM = (
    *(BadRequest, Unauthorized, Forbidden, NotAcceptable, UriTooLong),
    *(HeadersTooLarge, InternalError, Unavailable),
)
BODY_PROBLEMS = (InvalidJson, BodyTooLarge, UnsupportedMediaType, ValidationFailed)
WRITE_PROBLEMS = (*BODY_PROBLEMS, Duplicate, InsufficientStorage)
CHANGE_PROBLEMS = (NotFound, PreconditionFailed)

# Groups of operations, named among their parameters: a feature adds to the operations of a group, see `Contribution`.
IDEMPOTENT = "Idempotent"  # a repeated request is not executed again
COMPARED = "Compared"  # a repeated request must have the body and the credentials of the first one
GROUPS = (IDEMPOTENT, COMPARED)
UNUSED = "Unused"  # no operation has it: a problem that is added to it has only a page


@dataclass(frozen=True)
class Parameter:
    """A parameter of one operation, in the path if the route names it there, otherwise in the query.

    `schema` returns its JSON Schema from the object that the handler is a method of. An array is sent with commas.
    `about` is its description.
    """

    name: str
    schema: Callable[[Any], JsonSchema]
    about: str = ""


@dataclass(frozen=True)
class Body:
    """A request body."""

    schema: SchemaOf
    media_types: tuple[str, ...] = (JSON,)


@dataclass(frozen=True)
class Result:
    """A response. With a `name` it is a component, which several operations share: no success, as some generators of
    clients do not read the body of a success elsewhere.

    `content` has a schema for each media type. A response with `at_most` is a list of it: of so many items at most, or
    PAGE_LIMIT_MAX where that is more. `headers` are those beyond the ones of all responses. `with_parameter` has the
    schemas of what one of these parameters changes of it: `x-with` in the document, as generated clients have one type
    for a response; likewise `also` has the schemas of other media types that the client can have instead, `x-content`.
    `links` names operations that take what the response has.
    """

    about: str
    content: Mapping[str, SchemaOf] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    name: str = ""
    status: int = 200
    at_most: int | None = None
    with_parameter: Mapping[str, SchemaOf] = field(default_factory=dict)
    also: Mapping[str, JsonSchema] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


NOT_MODIFIED = Result("Nothing has changed.", headers=("ETag",), name="NotModified", status=304)
DONE = Result("Done.")


@dataclass(frozen=True)
class Operation:
    """What is declared of a handler. A schema among the parameters is that of the whole query."""

    parameters: tuple[str | Parameter | Schema, ...]
    body: Body | None
    responses: tuple[Result, ...]
    problems: tuple[type[Problem], ...]


def several(item: JsonSchema, **bounds: Any) -> JsonSchema:
    """The schema of an array with at least one item."""
    return {"type": "array", "items": item, "minItems": 1, **bounds}


def takes(
    *parameters: str | Parameter | Schema, query: AnySchema | None = None, body: Body | AnySchema | None = None
) -> Callable[[View], View]:
    """Declare the parameters and the body of a handler's request.

    What a schema of marshmallow declares is loaded, and given to the view as `query` or `body`. In a query, the values
    of a list are separated by commas. Raises ValueError for anything else than a schema of one object.
    """
    problems: tuple[type[Problem], ...] = ()
    readers: dict[str, Callable[[], Any]] = {}
    if query is not None:
        schema = _schema(query)
        parameters, problems, readers["query"] = (*parameters, schema), (InvalidQuery,), partial(read_query, schema)
    if body is not None and not isinstance(body, Body):
        schema = _schema(body)
        body, problems, readers["body"] = Body(schema), (*problems, *BODY_PROBLEMS), partial(read_body, schema)
    return lambda view: _declared(
        view, with_arguments(view, **readers) if readers else view, takes=(parameters, body, problems)
    )


def returns(*outcomes: Result | AnySchema | type[Problem], status: int = 200) -> Callable[[View], View]:
    """Declare the responses of a handler, and the problems that it has beyond those of every request.

    What a view returns is dumped by a schema of marshmallow and sent with the `status`, unless it is a response. Raises
    ValueError for a second schema, and for anything else.
    """
    problems = [outcome for outcome in outcomes if isinstance(outcome, type) and issubclass(outcome, Problem)]
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    schemas = [_schema(outcome, many=True) for outcome in outcomes if outcome not in (*problems, *results)]
    if len(schemas) > 1:
        raise ValueError(f"returns: {schemas[1]!r}: a view returns what one schema has")
    content = [replace(DONE, about="The result.", content={JSON: schema}, status=status) for schema in schemas]
    declared = (*(results or content or [replace(DONE, status=status)]), *problems)
    return lambda view: _declared(view, dumped(view, schemas[0], status) if schemas else view, returns=declared)


def _schema(declared: Any, *, many: bool = False) -> Schema:
    schema = declared() if isinstance(declared, type) and issubclass(declared, Schema) else declared
    if not isinstance(schema, Schema) or schema.many > many:
        raise ValueError(f"{declared!r}: must be a schema of marshmallow{'' if many else ', of one object'}")
    return schema


def _declared(view: Any, wrapped: Any, **declaration: Any) -> Any:
    vars(view)["is_replaced"] = wrapped is not view  # so that it can be no view any more
    vars(wrapped).update(declaration)
    return wrapped


def operation_of(view: Callable[..., Any]) -> Operation:
    """The declaration of a handler; without any, it takes nothing and returns that it is done."""
    parameters, body, problems = next(_declarations(view, "takes"), ((), None, ()))
    outcomes = next(_declarations(view, "returns"), (DONE,))
    return Operation(
        parameters,
        body,
        tuple(outcome for outcome in outcomes if isinstance(outcome, Result)),
        (*problems, *(outcome for outcome in outcomes if not isinstance(outcome, Result))),
    )


def _declarations(view: Callable[..., Any], name: str) -> Iterator[Any]:
    """What the handler declares under a name, then what those that it overrides do."""
    overridden = (vars(of).get(view.__name__) for of in type(getattr(view, "__self__", None)).__mro__)
    return (getattr(handler, name) for handler in (view, *overridden) if hasattr(handler, name))


EXAMPLE_TIME = "2026-01-31T12:00:00.000000Z"
DIALECTS = "x-dialects"  # of a document: the query dialects of other clients that lists accept
CLOSED: JsonSchema = {"type": "object", "additionalProperties": False}

_WORD = re.compile(r"<(\w+)>")


class Description(Protocol):
    """The document of one version of the API while it is built. It has the components of all collections.

    `options` are more members of the document.
    """

    components: Components
    options: dict[str, Any]

    def schema(self, schema: SchemaOf) -> JsonSchema:
        """The JSON Schema of a declared schema; of a name, a reference to the component."""


@dataclass(frozen=True)
class Contribution:
    """What an open feature adds to the description of the operations of the group `to`; without it, of all operations.

    Components are given by name. The parameters stand where the group is named. The headers are those of all responses;
    with a group, of all but problems. `security` are the schemes of credentials; with OWN as `to`, only of the
    operations that need OWN. `about` is a paragraph of the introduction, in which <version> is that of the document.
    `tags` describes the feature's tags, and `operations` has additions to descriptions, by name of the handler.
    `hides` is given a version, path and method, and returns whether the document leaves that operation out.
    `build` adds components and messages of the feature to each document, before the operations are added; features that
    are built on others are called first. `amend` is given the whole document of each version of the API, with the name
    of the version, and may change it.
    """

    to: str = ""
    parameters: Mapping[str, JsonSchema] = field(default_factory=dict)
    headers: Mapping[str, JsonSchema] = field(default_factory=dict)
    problems: tuple[type[Problem], ...] = ()
    security: Mapping[str, JsonSchema] = field(default_factory=dict)
    about: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    operations: Mapping[str, str] = field(default_factory=dict)
    hides: Callable[[str, str, str], bool] = lambda version, path, method: False
    build: Callable[[Description], None] = lambda description: None
    amend: Callable[[JsonSchema, str], None] = lambda document, version: None

    def __post_init__(self) -> None:
        if self.to not in (groups := ("", *GROUPS, UNUSED, OWN)):
            raise ValueError(f"Contribution(to={self.to!r}): must be one of {', '.join(map(repr, groups))}")


def texts_in(path: Path, **values: Any) -> dict[str, Any]:
    """The parts of a description in a TOML file, with the known values for their <words>."""
    return dict(filled(_parsed(path), **values))


@lru_cache(maxsize=16)  # all that there are
def _parsed(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def filled(text: Any, **values: Any) -> Any:
    """A part of a description with the known values for its <words>."""
    if isinstance(text, dict):
        return {name: filled(member, **values) for name, member in text.items()}
    if not isinstance(text, str):
        return text
    whole = _WORD.fullmatch(text)
    return values.get(whole[1], text) if whole else _WORD.sub(lambda word: str(values.get(word[1], word[0])), text)


def returned(properties: JsonSchema) -> JsonSchema:
    """The schema of a returned object: all members are required, and no others are allowed."""
    return CLOSED | {"properties": properties, "required": list(properties)}


_KINDS = ((fields.Integer, Kind.INTEGER), (fields.Decimal | fields.Float, Kind.NUMBER), (fields.Boolean, Kind.BOOLEAN))


def with_arguments(view: Callable[..., Any], **readers: Callable[[], Any]) -> Callable[..., Any]:
    """The view, called with more arguments: the results of the readers."""

    @wraps(view)
    def call(*values: Any, **arguments: Any) -> Any:
        read = {name: reader() for name, reader in readers.items()}
        return current_app.ensure_sync(view)(*values, **arguments, **read)

    return call


def dumped(view: Callable[..., Any], schema: Schema, status: int) -> Callable[..., Any]:
    """The view, whose result is dumped and sent with a status, unless it is a response or has a status itself."""

    @wraps(view)
    def call(*values: Any, **arguments: Any) -> Any:
        require_acceptable(JSON)
        result = current_app.ensure_sync(view)(*values, **arguments)
        value, *rest = result if isinstance(result, tuple) else (result, status)
        return result if isinstance(value, Response) else (schema.dump(value), *rest)

    return call


def read_body(schema: Schema) -> Any:
    """The JSON object in the request's body, loaded. Raises as `read_object`, and ValidationFailed."""
    return loaded(schema, read_object(JSON, **current_app.extensions["restkeeper"].config.body_limits))


def _value(text: str, field: Field, declared: fields.Field[Any]) -> Any:
    """The value of a parameter. Raises ValueError, which names the right values: of a whole number its bounds."""
    try:
        return value_of(text, field)
    except ValueError:
        ranges = [validator for validator in declared.validators if isinstance(validator, validate.Range)]
        for bounds in ranges if field.kind is Kind.INTEGER else ():
            if bounds.min_inclusive and bounds.max_inclusive and None not in (bounds.min, bounds.max):
                raise ValueError(f"must be a whole number from {bounds.min} to {bounds.max}") from None
        raise


def read_query(schema: Schema) -> Any:
    """The parameters of the request's query, loaded. Raises InvalidQuery."""
    reader, sent = Reader(arguments()), dict[str, Any]()
    declarations = {declaration.data_key or name: declaration for name, declaration in schema.load_fields.items()}
    if schema.unknown != EXCLUDE:
        reader.only(tuple(declarations), "this path")
    for name, declared in declarations.items():
        inner: Any = declared.inner if isinstance(declared, fields.List) else declared
        kind = next((kind for of, kind in _KINDS if isinstance(inner, of)), Kind.TEXT)
        read = partial(_value, field=Field(name, kind), declared=inner)
        if name in request.args:
            sent[name] = reader.one(name, read, "") if inner is declared else reader.several(name, read, MAX_VALUES)
    reader.finish()
    try:
        return schema.load(sent)
    except ValidationError as error:
        for fault in faults_in(error.messages):
            reader.fault(f"{fault['pointer']}/".split("/")[1], fault["detail"])
        reader.finish()
        raise
