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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from marshmallow import Schema

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
from restkeeper.web.auth import OWN
from restkeeper.web.bodies import JSON

if TYPE_CHECKING:
    from apispec.core import Components

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


def takes(
    *parameters: str | Parameter | Schema, query: AnySchema | None = None, body: Body | AnySchema | None = None
) -> Callable[[View], View]:
    """A decorator that declares the parameters and the body of a view's request, for the API document.

    `query` and `body` are schemas of marshmallow: the request is loaded by them, and the view gets the results as
    keyword arguments `query` and `body`. In a query, the values of a list are separated by commas. Raises ValueError
    for anything else than a schema of one object.
    """
    problems: tuple[type[Problem], ...] = ()
    readers: dict[str, Callable[[], Any]] = {}
    if query is not None:
        schema = _schema(query)
        parameters, problems = (*parameters, schema), (InvalidQuery,)
        readers["query"] = partial(_views().read_query, schema)
    if body is not None and not isinstance(body, Body):
        schema = _schema(body)
        body, problems = Body(schema), (*problems, *BODY_PROBLEMS)
        readers["body"] = partial(_views().read_body, schema)
    return lambda view: _declared(
        view, _views().with_arguments(view, **readers) if readers else view, takes=(parameters, body, problems)
    )


def returns(*outcomes: Result | AnySchema | type[Problem], status: int = 200) -> Callable[[View], View]:
    """A decorator that declares the response of a view, and its own problems, for the API document.

    One of the `outcomes` can be a schema of marshmallow: it dumps what the view returns, which is sent with the
    `status`. A response of Flask is sent as it is. Problems are classes, such as NotFound. Raises ValueError for a
    second schema, and for anything else.
    """
    problems = [outcome for outcome in outcomes if isinstance(outcome, type) and issubclass(outcome, Problem)]
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    schemas = [_schema(outcome, many=True) for outcome in outcomes if outcome not in (*problems, *results)]
    if len(schemas) > 1:
        raise ValueError(f"returns: {schemas[1]!r}: a view returns what one schema has")
    content = [replace(DONE, about="The result.", content={JSON: schema}, status=status) for schema in schemas]
    declared = (*(results or content or [replace(DONE, status=status)]), *problems)
    return lambda view: _declared(
        view, _views().dumped(view, schemas[0], status) if schemas else view, returns=declared
    )


def _views() -> Any:
    """What serves views by schemas: those of the service, which has none or a few."""
    return import_module("restkeeper.web.views")


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


CLOSED: JsonSchema = {"type": "object", "additionalProperties": False}


class Description(Protocol):
    """The document of one version of the API while it is built. It has the components of all collections.

    `options` are more members of the document.
    """

    components: "Components"
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


def returned(properties: JsonSchema) -> JsonSchema:
    """The schema of a returned object: all members are required, and no others are allowed."""
    return CLOSED | {"properties": properties, "required": list(properties)}
