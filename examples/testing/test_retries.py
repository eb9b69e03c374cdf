"""Whether a client that sends requests again orders twice, shown by the faults of a bad day."""

import pytest

from client import LAMP_FOR_ADA, Shop
from restkeeper import Space

pytestmark = pytest.mark.restkeeper(seed="data.json")


def test_with_a_key_there_is_one_order(api: Space) -> None:
    """The response is lost after the commit, and the client sends the same again."""
    api.faults.drop_response("POST", "/orders", times=1)
    made = Shop(api.url).order(LAMP_FOR_ADA)
    assert made.headers["Idempotent-Replayed"] == "true" and Shop(api.url).orders() == [made.json()]
    assert [sent.fault for sent in api.requests(method="POST")] == ["drop_response", None]


def test_without_a_key_there_are_two(api: Space) -> None:
    """This is what would happen."""
    api.faults.drop_response("POST", "/orders", times=1)
    Shop(api.url, has_keys=False).order(LAMP_FOR_ADA)
    assert len(Shop(api.url).orders()) == 2


def test_a_store_that_fails_after_the_commit(api: Space) -> None:
    """A 503 does not say that nothing was done."""
    api.faults.fail_store("POST", "/orders", committed=True, times=2)
    made = Shop(api.url, pause=lambda seconds: None).order(LAMP_FOR_ADA)
    assert Shop(api.url).orders() == [made.json()]


def test_it_waits_as_long_as_it_is_told(api: Space) -> None:
    pauses: list[float] = []
    api.faults.respond("POST", "/orders", 429, retry_after=7, times=2)
    assert Shop(api.url, pause=pauses.append).order(LAMP_FOR_ADA).status_code == 200
    assert pauses == [7, 7]
    api.assert_requested("POST", "/orders", times=3, json=LAMP_FOR_ADA)


def test_a_connection_that_is_reset(api: Space) -> None:
    """By a load balancer that restarts, before the order and after it."""
    api.faults.reset("POST", "/orders", times=1)
    api.faults.reset("POST", "/orders", committed=True, times=1)
    made = Shop(api.url).order(LAMP_FOR_ADA)
    assert Shop(api.url).orders() == [made.json()]
