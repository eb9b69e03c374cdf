"""What a service's own views take and return, by schemas of marshmallow: see `operations.takes` and `returns`."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from flask import current_app, request
from marshmallow import EXCLUDE, Schema, ValidationError, fields
from werkzeug.wrappers import Response

from restkeeper.storage.interface import Field, Kind
from restkeeper.web.exactjson import (
    JSON,
    faults_in,
    faults_in_values,
    listed,
    read_object,
    require_acceptable,
    require_none,
)
from restkeeper.web.queries import MAX_VALUES, Reader, value_of

_KINDS = ((fields.Integer, Kind.INTEGER), (fields.Decimal | fields.Float, Kind.NUMBER), (fields.Boolean, Kind.BOOLEAN))


def given(view: Callable[..., Any], **readers: Callable[[], Any]) -> Callable[..., Any]:
    """The view, called with what the readers return as well."""

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
    config = current_app.extensions["restkeeper"].config
    return load(
        schema, read_object(JSON, max_body=config.max_body, max_depth=config.max_depth, max_values=config.max_nodes)
    )


def load(schema: Schema, sent: dict[str, Any]) -> Any:
    """What a schema loads from a JSON object. Raises ValidationFailed."""
    require_none(listed(faults_in_values(sent)))
    try:
        return schema.load(sent)
    except ValidationError as error:
        require_none(listed(faults_in(error.messages)))
        raise


def read_query(schema: Schema) -> Any:
    """The parameters of the request's query, loaded. Raises InvalidQuery."""
    reader, sent = Reader(request.args), dict[str, Any]()
    known = {field.data_key or name: field for name, field in schema.load_fields.items()}
    if schema.unknown != EXCLUDE:
        reader.only(tuple(known), "this path")
    for name, field in known.items():
        inner: Any = field.inner if isinstance(field, fields.List) else field
        kind = next((kind for of, kind in _KINDS if isinstance(inner, of)), Kind.TEXT)
        read = partial(value_of, field=Field(name, kind))
        if name in request.args:
            sent[name] = reader.one(name, read, "") if inner is field else reader.several(name, read, MAX_VALUES)
    reader.finish()
    try:
        return schema.load(sent)
    except ValidationError as error:
        for each in faults_in(error.messages):
            reader.fault(f"{each['pointer']}/".split("/")[1], each["detail"])
        reader.finish()
        raise
