"""The benchmarks make requests of their own, which the service must know, and draw the plots of docs/scaling.md."""

import re
from xml.etree import ElementTree

from flask.testing import FlaskClient

from bench import figures
from bench.rows import cursor


def test_cursors_are_those_of_the_service(client: FlaskClient) -> None:
    """A page that begins after a place is no error, in each order that is measured."""
    for place, order in [(("a",), {}), ((5, "a"), {"sort": "price"}), (("a",), {"status": "active"})]:
        response = client.get("/products", query_string={**order, "cursor": cursor((False, *place), **order)})
        assert response.status_code == 200, response.json


def assert_plain(svg: str) -> None:
    """It is small, has a title and both colour schemes, and neither runs nor loads anything."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own
    names = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert names <= {"svg", "defs", "style", "title", "g", "rect", "path", "circle", "text"}
    assert root.findtext("{*}title") and len(svg) < 30_000 and "prefers-color-scheme:dark" in svg
    assert svg.count("http") == 1 and not re.search(r"url\(|@import|@font-face|href", svg)  # the namespace
    assert not [name for each in root.iter() for name in each.attrib if name.startswith("on")]


def test_the_plots_of_the_page_are_plain() -> None:
    for name in ("requests.svg", "items.svg"):
        assert_plain((figures.PICTURES / name).read_text(encoding="utf-8"))
