"""json-server's documented requests for reading, compared with what it answers itself: see json_server/record.py."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from restkeeper import Config, create_app
from restkeeper.features.files import FileOptions, application_of
from tests.json_server.compared import REASONS
from tests.json_server.record import HERE, data, requests
from tests.json_server.shapes import OTHERWISE
from tests.live import ROOT

pytestmark = pytest.mark.needs("dialects")

RECORDED = json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))
ALL_0, ALL_1 = list(range(1, 13)), list("123456789abc")

# What we answer where it is not the same, by the first column of the table in docs/json-server.md.
DIFFERENCES: dict[str, dict[str, Any]] = {
    "unknown names": {
        "0.17 /posts?colour=red": [],
        "0.17 /posts?_embed=nothing": "invalid-query",
    },
    "wrong values": {
        "0.17 /posts?_start=5&_end=5": "invalid-query",
        "1 /posts?_page=1&_per_page=0": "invalid-query",
        '1 /posts?views:lt=10&_where={"views': "invalid-query",
    },
    "`_page=1` alone": {"1 /posts?_page=1": list("123456789a")},
    "`_page` after the last": {"1 /posts?_page=9&_per_page=5": []},
    "order": {
        "0.17 /posts?_sort=views&_order=desc": [3, 11, 10, 1, 2, 7, 6, 5, 12, 8, 9, 4],
        "1 /posts?_sort=title": list("58b1976a3c42"),
        "1 /posts?_sort=-views": list("3ba12765c894"),
        "1 /posts?_sort=-published,views": list("9856721ab4c3"),
    },
    "`title_like=^hello`": {"0.17 /posts?title_like=^hello": []},
    "`title:startsWith=hello`, `title:endsWith=WORLD`": {"1 /posts?title:startsWith=Hello": ["1"]},
    "`_embed=comments`": {
        "0.17 /posts?_embed=comments": ALL_0,
        "0.17 /posts/1?_embed=comments": "",
        "1 /posts?_embed=comments": ALL_1,
        "1 /posts/1?_embed=comments": "",
    },
    "`id:in=1,2` (texts)": {"1 /posts?id:in=1,2,a": ["1", "2", "a"]},
    "`views=20&views=50`": {"1 /posts?views=20&views=50": ["2", "6", "7"]},
    "`_where`": {
        '1 /posts?_where={"and":[{"views":{"lt":8}}]}': ["4"],
        '1 /posts?_where={"views":20}': ["6", "7"],
        '1 /posts?views:gt=100&_where={"views":{"lt":10}}': [],
    },
    "errors": {"0.17 /posts/99": "not-found", "1 /posts/99": "not-found"},
}


def create_client(folder: Path, version: str) -> FlaskClient:
    """The service of db.json."""
    file = folder / "db.json"
    file.write_text(json.dumps(data(version)))
    return application_of(create_app, file, FileOptions(), config=Config()).test_client()


def shown(body: Any) -> Any:
    """What DIFFERENCES have of a body: the ids of a list, or else the type of a problem."""
    items = body.get("data", body.get("type", "")) if isinstance(body, dict) else body
    return [item["id"] for item in items] if isinstance(items, list) else items.rpartition("/")[2]


def headers(found: Mapping[str, str], wanted: Iterable[str]) -> dict[str, Any]:
    """The total, and the relations of a Link header."""
    return {name: sorted(re.findall(r'rel="(\w+)"|^(\d+)$', found.get(name, ""))) for name in wanted}


def test_answers_are_those_of_json_server(tmp_path: Path) -> None:
    """The status and body, and where it has them the total and the relations of links; but for the DIFFERENCES."""
    different: dict[str, Any] = {}
    for version in ("0.17", "1"):
        answers, client = RECORDED[version]["answers"], create_client(tmp_path, version)
        assert list(answers) == requests(version), "run record.py"
        for request, recorded in answers.items():
            response = client.get(request)
            ours = response.status_code, response.get_json(), headers(response.headers, recorded["headers"])
            if ours != (recorded["status"], recorded["body"], headers(recorded["headers"], recorded["headers"])):
                different[f"{version} {request}"] = shown(response.get_json())
    assert different == {request: answer for requests in DIFFERENCES.values() for request, answer in requests.items()}


def test_each_difference_is_documented() -> None:
    """By a row of the table; so each row is met here or by the packages themselves."""
    page = (ROOT / "docs" / "json-server.md").read_text(encoding="utf-8")
    table = page.partition("## Differences")[2]
    rows = re.findall(r"(?m)^\| (.+?) \| .+ \|$", table)[1:]
    assert sorted(rows) == sorted({*DIFFERENCES, *OTHERWISE, *(name for name, _ in REASONS)})


def found(client: FlaskClient, where: Any, **others: str) -> list[int | str] | str:
    """What is found by `_where`, or the fault."""
    text = where if isinstance(where, str) else json.dumps(where)
    response = client.get("/posts", query_string={"_where": text, **others})
    if response.status_code == 200:
        ids: list[int | str] = [item["id"] for item in response.get_json()]
        return ids
    (error,) = response.get_json()["errors"]
    return f"{error['parameter']} {error['detail']}"


def nested(depth: int) -> Any:
    """A condition inside others."""
    return {"and": [nested(depth - 1)]} if depth else {"views": {"lt": 8}}


WHERE: list[tuple[Any, list[int] | str]] = [
    ({}, ALL_0),
    ({"or": [{"and": [{"views": {"gt": 100}}, {"published": False}]}, {"title": "Six"}]}, [3, 6]),
    ({"and": [{"views": {"eq": 20}}, {"views": {"eq": 50}}]}, []),
    ({"and": [{"views": 20}, {"or": [{"id": 6}, {"id": {"in": [8, 7]}}]}, {"views": {"eq": 20}}]}, [6, 7]),
    ({"and": [{"or": []}, {"or": [{}]}]}, []),
    ({"views": {"in": []}}, []),
    ({"title": {"in": ['a "b", \\ c)', "Nine"]}}, [9]),
    ({"author": {"and": [{"name": {"startsWith": "ty"}}, {"city": "Rome"}]}}, [12]),
    ({"note": {"eq": None}, "id": {"gt": 9}}, [10, 12]),
    ({"or": [{"note": {"ne": None}}, {"id": 1}]}, [1, 11]),
    ({"or": [{"postId": None}]}, ALL_0),
    ({"or": [{"views": 1}, {"colour": "red"}]}, []),
    ({"views": {"gt": "many"}}, []),
    ({"views": {"gt": [1]}}, "_where has for 'views' no comparison"),
    ({"views[gt]": 5}, "_where has for 'views[gt]' no comparison"),
    ({"or": [{'views="1",title': 5}]}, "_where has for 'views=\"1\",title' no comparison"),
    ({"or": {"views": 5}}, []),
    ({"or": [5]}, "_where must be an object"),
    ([], "_where must be an object"),
    ("{", "_where must be JSON"),
    (nested(7), "_where must be an object of conditions, with at most 8"),
    (nested(6), [4]),
    ({"and": [{"views": each} for each in range(101)]}, "_where has more than 100 conditions"),
    ({"or": [{"views": 1, "id": 1, "title": "a"}] * 5}, "_where has too many alternatives"),
    ({"or": [{"views": 1, "id": 1, "title": "a"}] * 4}, "_where has more than 100 conditions"),
    ({"or": [{"views": 1, "id": 1, "title": "a"}] * 3}, []),
]


def test_where(tmp_path: Path) -> None:
    """Conditions of which one, or all, are enough; values mean themselves, whatever characters they have."""
    client = create_client(tmp_path, "0.17")
    answers = [(where, expected, found(client, where)) for where, expected in WHERE]
    wrong = [
        each
        for each in answers
        if each[2] != each[1] and not (isinstance(each[1], str) and each[2][: len(each[1])] == each[1])
    ]
    assert wrong == []


def test_where_goes_with_other_parameters(tmp_path: Path) -> None:
    """All of them hold."""
    client = create_client(tmp_path, "1")
    assert found(client, {"views": {"gt": 8}}, views="20", q="SEV") == ["7"]
    assert found(client, {"views": 20}, **{"views": "50"}) == []
    assert found(client, {"views": 20}, **{"views:gt": "20"}) == []
    assert found(client, {"or": [{"views": 20}, {"id": "1"}]}, _sort="-id", _start="1", _end="3") == ["6", "1"]
    response = client.get("/posts?_per_page=5")
    assert response.get_json()["detail"] == "_per_page needs _page"
    assert client.head("/posts?_page=1&_per_page=5").content_length > 500


FORMS = [
    ({"day": "2026-01-31"}, ["abc", "20260131", "2026-02-30", "2026-01"], "must be a date like 2026-01-31"),
    (
        {"when": "2026-01-31T12:00:00+02:00"},
        ["abc", "12:00", "20260131", "2026-02-30", "2026-02-30T12:00:00Z", "2026-01-31T12:00"],
        "must be a time like 2026-01-31T12:00:00Z",
    ),
    ({"key": "01912d68-783e-7a03-8467-5661c1243ad4"}, ["abc", "01912d68"], "must be a UUID"),
]


@pytest.mark.parametrize(("item", "wrong", "form"), FORMS)
def test_a_filter_takes_what_has_the_format_of_the_file(
    tmp_path: Path, item: dict[str, str], wrong: list[str], form: str
) -> None:
    """Another text is a 400 that names the form, in each way to write a filter; a part of a text is free."""
    (file := tmp_path / "db.json").write_text(json.dumps({"a": [{"id": 1, **item, "in": [item]}]}))
    client = application_of(create_app, file, FileOptions(strict=True), config=Config()).test_client()
    [(name, good)] = item.items()
    whole = ["", "[ne]", "[in]", "[lte]", "_ne", "_gte", "_lte", ":lt", ":in"]
    for value in wrong:
        for query in [*(f"{name}{each}" for each in whole), f"in.{name}", f"in.{name}[gt]"]:
            response = client.get("/a", query_string={query: value})
            assert response.status_code == 400, (query, value)
            assert response.get_json()["errors"][0]["detail"].startswith(form), (query, value)
        alternatives = [{"or": f'({name}="{value}",id=1)'}, {"_where": json.dumps({name: {"lt": value}})}]
        assert all(form in client.get("/a", query_string=each).get_json()["detail"] for each in alternatives)
    found = [f"{name}={good}", f"{name}_gte={good}", f"in.{name}[lte]={good}", f"{name}_like={good[2:6]}"]
    assert [len(client.get(f"/a?{each}").get_json()) for each in found] == [1, 1, 1, 1]  # "+" without an escape, too


def test_the_times_of_a_file_can_be_filtered_by_a_day(tmp_path: Path) -> None:
    """It is before all times of that day; null is no time."""
    times = ["2026-01-30T23:59:59.999Z", "2026-01-31T00:00:00.000Z", None]
    (file := tmp_path / "db.json").write_text(json.dumps({"a": [{"id": i, "at": at} for i, at in enumerate(times)]}))
    client = application_of(create_app, file, FileOptions(), config=Config()).test_client()
    for query, expected in (("at_gte=2026-01-31", [1]), ("at_lte=2026-01-31", [0]), ("at=null", [2])):
        assert [each["id"] for each in client.get(f"/a?{query}").get_json()] == expected, query


def test_dependents_are_deleted(tmp_path: Path) -> None:
    """With the item; without `_dependent` they stay, and refer to none."""
    for query, left in (("", [(1, None), (2, None), (3, None), (4, 2)]), ("?_dependent=comments", [(4, 2)])):
        client = create_client(tmp_path, "0.17")
        assert client.delete(f"/posts/1{query}").status_code == 200
        assert [(each["id"], each["postId"]) for each in client.get("/comments").get_json()] == left
