"""The benchmarks make requests of their own, which the service must know, and write the figures of docs/scaling.md."""

import re
from xml.etree import ElementTree

import pytest
from flask.testing import FlaskClient

from bench import __main__ as bench
from bench import figures
from bench.postgresql import GUARDED, PLAIN, PREFIX
from bench.rows import cursor
from bench.scenario import CREATE, DELIVERIES, ONE, OURS, PAGE, Figures, Results

ITEM = {OURS: Figures(6730, late=14), bench.BARE: Figures(6100, 1.1, late=12), bench.LITESTAR: Figures(3870, 1.74)}
STORED = {OURS: Figures(3000), PLAIN: Figures(1000, 3), GUARDED: Figures(750, 4)}
MADE_UP: Results = {
    "one item of 100,000": {"of 1,000": Figures(0, cost=200), OURS: Figures(0, cost=210)},
    ONE: ITEM | {bench.SMOREST: Figures(2000, 3.37)},
    PAGE: ITEM,
    CREATE: {OURS: Figures(2460), bench.LITESTAR: Figures(1500, 1.64)},
    DELIVERIES: {OURS: Figures(1900)},
    **{PREFIX + name: STORED for name in (ONE, PAGE, CREATE)},
    PREFIX + DELIVERIES: {OURS: Figures(490)},
}


def test_cursors_are_those_of_the_service(client: FlaskClient) -> None:
    """A page that begins after a place is no error, in each order that is measured."""
    for place, order in [(("a",), {}), ((5, "a"), {"sort": "price"}), (("a",), {"status": "active"})]:
        response = client.get("/products", query_string={**order, "cursor": cursor((False, *place), **order)})
        assert response.status_code == 200, response.json


def test_the_figures_are_written_into_their_page() -> None:
    """Twice is the same as once, and the text around them stays."""
    text = figures.section(MADE_UP, "Commit `abc`, today.")
    for line in (
        "Commit `abc`, today.",
        "|  | requests/s | / bare Flask | / Litestar + SQLAlchemy | / flask-smorest + SQLAlchemy |",
        "| one item at random | 6,730 | 1.10 | 1.74 | 3.37 |",
        "| create with an idempotency key | 2,460 | – | 1.64 | – |",
        "The slowest hundredth of the reads of one item takes 14 ms, of bare Flask's 12 ms.",
        "The processor time of a request to 100,000 items on SQLite, as a ratio to 1,000: one item 1.05 ×.",
        "| deliveries of one webhook | 490 | – | – |",
    ):
        assert f"\n{line}\n" in text
    page = figures.FILE.read_text(encoding="utf-8")
    written = figures.replaced(page, text)
    assert text in written and figures.replaced(written, text) == written
    assert [written.partition(text)[0], written.partition(text)[2]] == [
        page.partition(figures.BEGIN)[0],
        page.partition(figures.END)[2],
    ]
    with pytest.raises(ValueError, match="marks"):
        figures.replaced("# Scaling", text)


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
