"""Conditional requests: RFC 9110, section 13."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from flask.testing import FlaskClient

from restkeeper.config import Config
from restkeeper.resources.views import StoredView
from restkeeper.web.preconditions import last_modified
from tests.clock import SetClock
from tests.shop import create_app
from tests.shop.products import RESOURCE

PAST = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
FUTURE = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)


def make(client: FlaskClient) -> tuple[str, str]:
    made = client.post("/products", json={"name": "Lamp"})
    return made.headers["Location"], made.headers["ETag"]


CASES = [
    # condition headers ({tag} is the current one), status of GET, status of PUT/PATCH/DELETE
    ({"If-Match": "{tag}"}, 200, 200),
    ({"If-Match": '"other", {tag}'}, 200, 200),
    ({"If-Match": "*"}, 200, 200),
    ({"If-Match": '"other"'}, 412, 412),
    ({"If-Match": "W/{tag}"}, 412, 412),
    ({"If-Match": ""}, 412, 412),
    ({"If-Unmodified-Since": FUTURE}, 200, 200),
    ({"If-Unmodified-Since": PAST}, 412, 412),
    ({"If-Unmodified-Since": "no date"}, 200, 200),
    ({"If-Match": "{tag}", "If-Unmodified-Since": PAST}, 200, 200),
    ({"If-None-Match": "{tag}"}, 304, 412),
    ({"If-None-Match": "W/{tag}"}, 304, 412),
    ({"If-None-Match": "*"}, 304, 412),
    ({"If-None-Match": '"other"'}, 200, 200),
    ({"If-Modified-Since": FUTURE}, 304, 200),
    ({"If-Modified-Since": PAST}, 200, 200),
    ({"If-Modified-Since": "no date"}, 200, 200),
    ({"If-Modified-Since": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, 200, 200),
    ({"If-None-Match": '"other"', "If-Modified-Since": FUTURE}, 200, 200),
    ({"If-None-Match": "{tag}", "If-Modified-Since": PAST}, 304, 412),
    ({"If-Match": "{tag}", "If-None-Match": "{tag}"}, 304, 412),
    ({"If-Match": '"other"', "If-None-Match": "{tag}"}, 412, 412),
]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
def test_all_combinations_of_conditions(client: FlaskClient, method: str) -> None:
    """In the order of section 13.2.2; a 304 has no body, and ETag and Cache-Control of the 200 (section 15.4.5)."""
    for conditions, reading, writing in CASES:
        where, tag = make(client)
        headers = {name: value.replace("{tag}", tag) for name, value in conditions.items()}
        body = {"name": "Other"} if method in ("PUT", "PATCH") else None
        response = client.open(where, method=method, json=body, headers=headers)
        assert response.status_code == (reading if method in ("GET", "HEAD") else writing), conditions
        if response.status_code in (304, 412):
            full = client.get(where)
            assert response.headers["ETag"] == full.headers["ETag"] == tag
        if response.status_code == 304:
            assert (response.data, response.headers["Cache-Control"]) == (b"", full.headers["Cache-Control"])


def test_what_would_fail_fails_with_any_condition(client: FlaskClient) -> None:
    """A condition is evaluated only where the request without it would succeed (section 13.2.1)."""
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        body = {"name": "x"} if method in ("PUT", "PATCH") else None
        response = client.open("/products/none", method=method, json=body, headers={"If-Match": '"1"'})
        assert response.status_code == 404
    for query in ("cursor=none", "limit=0", "colour=red", "sort=-"):
        for condition in ({"If-None-Match": "*"}, {"If-Match": '"other"'}):
            assert client.get(f"/products?{query}", headers=condition).status_code == 400


def test_lists_have_etags_on_which_a_create_can_depend(client: FlaskClient) -> None:
    where, _ = make(client)
    tag = client.get("/products").headers["ETag"]
    assert client.get("/products", headers={"If-None-Match": tag}).status_code == 304
    assert client.get("/products", headers={"If-Match": '"other"'}).status_code == 412
    client.post("/users", json={"email": "ada@example.org"})
    assert client.get("/products", headers={"If-None-Match": tag}).status_code == 304
    client.patch(where, json={"stock": 1})
    assert client.get("/products", headers={"If-None-Match": tag}).status_code == 200
    tag = client.get("/products").headers["ETag"]
    assert client.post("/products", json={"name": "x"}, headers={"If-Match": tag}).status_code == 200
    assert client.post("/products", json={"name": "y"}, headers={"If-Match": tag}).status_code == 412
    assert len(client.get("/products").json) == 2


def test_if_match_can_be_required() -> None:
    client = create_app(Config(require_if_match=True)).test_client()
    where, tag = make(client)
    for method in ("PUT", "PATCH", "DELETE"):
        body = {"name": "x"} if method != "DELETE" else None
        response = client.open(where, method=method, json=body)
        assert response.status_code == 428
        assert client.open(where, method=method, json=body, headers={"If-Unmodified-Since": FUTURE}).status_code == 428
        assert response.json["type"].endswith("/problems/precondition-required")
    assert client.delete(where, headers={"If-Match": tag}).status_code == 200


def changed_at(client: FlaskClient, time: str, id: str = "a") -> str:
    record = StoredView(RESOURCE).new_record({"name": "Lamp"}, id=id, now=time)
    store = client.application.extensions["restkeeper"].store
    store.write(lambda transaction: transaction.insert("products", record))
    return f"/products/{id}"


SECOND = "Sat, 31 Jan 2026 12:00:00 GMT"
NEXT = "Sat, 31 Jan 2026 12:00:01 GMT"


DATES = [
    ("12:00:00.000000", "Sat, 31 Jan 2026 11:59:59 GMT", False),
    ("12:00:00.000000", SECOND, False),
    ("12:00:00.000000", NEXT, True),
    ("12:00:00.000001", SECOND, False),
    ("12:00:00.999999", SECOND, False),
    ("12:00:00.999999", NEXT, True),
    ("12:00:01.000001", NEXT, False),
    ("12:00:00.500000", "Sat, 31 Jan 2026 12:00:01 -0000", True),
    ("12:00:00.500000", "Sat, 31 Jan 2026 12:00:00 -0000", False),
    ("12:00:00.500000", "Saturday, 31-Jan-26 12:00:01 GMT", True),
    ("12:00:00.500000", "Saturday, 31-Jan-26 12:00:00 GMT", False),
    ("12:00:00.500000", "Sat Jan 31 12:00:01 2026", True),
    ("12:00:00.500000", "Sat Jan 31 12:00:00 2026", False),
]


def test_a_date_is_compared_with_the_time_of_the_change(client: FlaskClient) -> None:
    """In every form of a date: a change after that second is another state, a change before it is not."""
    for number, (time, date, is_same) in enumerate(DATES):
        where = changed_at(client, f"2026-01-31T{time}Z", str(number))
        read = client.get(where, headers={"If-Modified-Since": date})
        written = client.patch(where, json={"stock": 1}, headers={"If-Unmodified-Since": date})
        expected = (304, 200) if is_same else (200, 412)
        assert (read.status_code, written.status_code) == expected, (time, date)


def test_a_date_is_valid_for_one_write(client: FlaskClient) -> None:
    """Of two writers with the same date one gets 412, however soon it follows; no reader gets a wrong 304."""
    where = changed_at(client, "2026-01-31T12:00:00.300000Z")
    date = client.get(where).headers["Last-Modified"]
    assert date == NEXT
    assert client.get(where, headers={"If-Modified-Since": date}).status_code == 304
    statuses = [
        client.patch(where, json={"stock": n}, headers={"If-Unmodified-Since": date}).status_code for n in (1, 2)
    ]
    assert statuses == [200, 412]
    assert client.get(where, headers={"If-Modified-Since": date}).status_code == 200


def with_clock(begin: float = 0.0) -> tuple[SetClock, FlaskClient]:
    """A clock, which begins so many seconds after a full one, and a client of a service that has it."""
    clock = SetClock(1_800_000_000 + begin)
    return clock, create_app(Config(), clock=clock).test_client()


class TestAClockThatWentBack:
    """An item's times never go back, so that a date that a client has is of one state only."""

    @pytest.mark.parametrize("back", [0.9, 3600.0, 1_700_000_000.0])
    def test_a_date_from_before_is_of_the_former_state(self, back: float) -> None:
        """After a change "earlier": no 304 for the changed item, and no lost update; also when the clock is right."""
        clock, client = with_clock(0.3)
        where, _ = make(client)
        clock.now += 0.8
        date = client.get(where).headers["Last-Modified"]
        assert client.get(where, headers={"If-Modified-Since": date}).status_code == 304
        clock.now -= back
        assert client.patch(where, json={"stock": 1}).status_code == 200
        for moved in (0.0, back, 1.0):
            clock.now += moved
            assert client.get(where, headers={"If-Modified-Since": date}).status_code == 200
            assert client.patch(where, json={"stock": 2}, headers={"If-Unmodified-Since": date}).status_code == 412
        client.patch(where, json={"stock": 3})
        clock.now += 1.0
        newer = client.get(where).headers["Last-Modified"]
        assert client.patch(where, json={"stock": 4}, headers={"If-Unmodified-Since": newer}).status_code == 200

    @pytest.mark.parametrize("begin", [0.3, 0.0005])
    def test_it_may_go_back_again(self, begin: float) -> None:
        """A date that was read while the clock was ahead is of no later state."""
        clock, client = with_clock(begin)
        where, _ = make(client)
        for stock in range(5):
            clock.now += 62
            date = client.get(where).headers["Last-Modified"]
            clock.now -= 62
            clock.now -= 1
            assert client.patch(where, json={"stock": stock + 1}).status_code == 200
            assert client.get(where, headers={"If-Modified-Since": date}).status_code == 200
            assert client.patch(where, json={"stock": 99}, headers={"If-Unmodified-Since": date}).status_code == 412

    def test_many_changes_do_not_run_ahead(self) -> None:
        """The times of changes ascend, and are two seconds at most after the last one before the clock went back."""
        clock, client = with_clock(0.3)
        where, _ = make(client)
        clock.now -= 60
        times = [client.patch(where, json={"stock": n}).json["updated_at"] for n in range(1, 50)]
        assert times == sorted(set(times))
        assert (times[0], times[-1][:19]) == ("2027-01-15T08:00:01.000001Z", "2027-01-15T08:00:01")
        clock.now += 62
        assert client.patch(where, json={"stock": 50}).json["updated_at"] == "2027-01-15T08:00:02.300000Z"

    @pytest.mark.needs("events")
    def test_a_deletion_is_not_before_the_last_change(self) -> None:
        clock, client = with_clock()
        where, _ = make(client)
        clock.now -= 60
        client.delete(where)
        created, deleted = (event["timestamp"] for event in client.get("/api/v1/events").json)
        assert created < deleted

    @pytest.mark.needs("keys", "webhooks")
    def test_rotation_is_a_change(self) -> None:
        clock, client = with_clock()
        for path, body in {
            "/api/v1/keys": {"name": "x", "scopes": ["products:read"]},
            "/api/v1/webhooks": {"url": "https://example.org/", "types": ["*"]},
        }.items():
            made = client.post(path, json=body).json
            clock.now -= 60
            rotated = client.post(f"{path}/{made['id']}/rotate").json
            assert rotated["updated_at"] > made["updated_at"] and rotated["version"] == 2
            assert rotated["created_at"] == made["created_at"]


def test_a_date_is_never_in_the_future(client: FlaskClient) -> None:
    """Until the second after the change, the date is that of the clock, and before the change (section 8.8.2.1)."""
    begins = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    before = "Sat, 31 Jan 2026 11:59:55 GMT"
    for now, date in {0.3: SECOND, 0.999: SECOND, 1.0: NEXT, 86400.0: NEXT, -5.0: before}.items():
        assert last_modified("2026-01-31T12:00:00.300000Z", begins + now) == date
    where, _ = make(client)
    for date in (
        *("", " ", "x", "GMT", "0" * 4000, "(" * 3000, "Sat,", ",", "1 2 3 4 5", "- - - -"),
        *("Sat, 31 Jan 2016 12:00:00 +9999", "Sat, 31 Jan 2016 12:00:60 GMT"),
        *("Fri, 30 Feb 2016 00:00:00 GMT", "Sat, 31 Jan 99999999999 12:00:00 GMT"),
    ):
        assert client.get(where, headers={"If-Unmodified-Since": date}).status_code == 200, date


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"])
def test_extreme_times_have_dates(client: FlaskClient, time: str) -> None:
    """An item that was imported with any time can be read, with any condition, and changed."""
    where = changed_at(client, time)
    for date in ("Mon, 01 Jan 0001 00:00:00 +0500", "Fri, 31 Dec 9999 23:59:59 -0500", FUTURE):
        for name in ("If-Modified-Since", "If-Unmodified-Since"):
            assert client.get(where, headers={name: date}).status_code in (200, 304, 412)
    assert client.patch(where, json={"stock": 1}).json["updated_at"] >= time
