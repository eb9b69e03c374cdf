"""What the views of a service read and return by schemas of marshmallow: see `operations.takes` and `returns`."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from flask import current_app, request
from marshmallow import EXCLUDE, Schema, ValidationError, fields, validate
from werkzeug.wrappers import Response

from restkeeper.exactjson import faults_in
from restkeeper.resources.filters import MAX_VALUES, value_of
from restkeeper.resources.parameters import Reader
from restkeeper.schemas.prepared import loaded
from restkeeper.storage.interface import Field, Kind
from restkeeper.web.bodies import JSON, read_object, require_acceptable
from restkeeper.web.calls import arguments

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
