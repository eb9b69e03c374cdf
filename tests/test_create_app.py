"""What `create_app` does for every application, and what only for the first one: a test makes one for itself."""

import inspect
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Unpack, get_origin

import flask
from marshmallow import Schema, fields
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, Map, RequestRedirect, Rule

import restkeeper
from restkeeper import Application, Config
from restkeeper.resources.call import PUBLIC
from restkeeper.schemas.fields import FieldOptions
from restkeeper.web.auth import needs
from tests import shop
from tests.shop import orders, tags

RESOURCES = [*shop.RESOURCES, orders.ORDERS, tags.TAGS]


def calls(work: Callable[[], Any], *functions: Callable[..., Any]) -> Counter[str]:
    """How often `work` calls each of these functions."""
    names, counts = {each.__code__: each.__qualname__ for each in functions}, Counter[str]()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in names:
            counts[names[frame.f_code]] += 1

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(former)
    return counts


def test_what_follows_from_a_declaration_is_made_once() -> None:
    """No rule is compiled, no schema made, and no file of texts parsed for a second application."""
    expensive = (Rule.compile, Schema.__init__, tomllib.loads)

    def make() -> Application:
        return restkeeper.create_app(Config(), RESOURCES)

    make()
    assert calls(make, *expensive) == {}
    assert calls(lambda: (Rule("/a/<id>").bind(Map()), tags.NameSchema(), tomllib.loads("")), *expensive).total() == 3


def test_an_editor_sees_the_names_and_options() -> None:
    """All public names of the package; the options of each field: those of marshmallow, and our own."""
    assert set(restkeeper.__all__) <= set(dir(restkeeper))
    theirs = inspect.get_annotations(fields.Field.__init__).keys() - {"return"}
    assert FieldOptions.__annotations__.keys() == theirs | {"readable_by", "writable_by"}
    public = {name: getattr(restkeeper, name) for name in restkeeper.__all__}
    known = {name: each for name, each in public.items() if isinstance(each, type) and issubclass(each, fields.Field)}
    typed = {name: get_origin(inspect.signature(each).parameters["options"].annotation) for name, each in known.items()}
    assert typed == dict.fromkeys(known, Unpack) and "Text" in typed


def test_routes_are_those_of_werkzeug() -> None:
    """Rules of one text share what is compiled; they are found and built as others, each for its own application."""

    class Sign(BaseConverter):
        regex = "[+-]"

    def shape(app: flask.Flask, name: str, method: str) -> list[Any]:
        """What an application with these rules does with paths."""
        own = [("/c/<sign:s>", None)] if "sign" in app.url_map.converters else []
        for rule, defaults in [
            *(("/a/<id>", None), ("/a/<int:n>/<path:p>", None), ("/b/", None), ("/a/1", {"m": 1}), *own),
        ]:
            app.add_url_rule(rule, name + rule, needs(PUBLIC)(lambda **_: ""), methods=[method], defaults=defaults)
        app.url_map.sort_parameters = name == "sorted"
        adapter, found = app.url_map.bind("localhost"), list[Any]()
        for path in ("/a/1", "/a/x", "/a/1/x/y", "/a/x/y", "/b", "/b/", "/a//x", "/c/+"):
            for asked in ("GET", "POST"):
                try:
                    found.append(adapter.match(path, asked))
                except (HTTPException, RequestRedirect) as error:
                    found.append(repr(error))
        return [*found, adapter.build(f"{name}/a/<int:n>/<path:p>", {"n": 2, "p": "x/ü", "zeta": 1, "alpha": 2})]

    for name, method in (("one", "GET"), ("other", "POST"), ("sorted", "GET"), ("converter", "GET")):
        ours, plain = Application("ours"), flask.Flask("plain")
        for app in (ours, plain):
            app.url_map.converters.update({"sign": Sign} if name == "converter" else {})
        assert shape(ours, name, method) == shape(plain, name, method)
    assert calls(lambda: shape(Application("ours"), "again", "PUT"), Rule.compile) == {
        "Rule.compile": 1
    }  # with defaults
