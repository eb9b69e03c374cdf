"""pytest and httpx: each test has a shop of its own, the fixture `api`."""

import json
from pathlib import Path

import pytest

from client import LAMP_FOR_ADA, Shop
from restkeeper import Space

pytestmark = pytest.mark.restkeeper(seed="data.json", random=7)  # with `random`, ids are always the same
GOLDEN = Path(__file__).with_name("order.json")


def test_an_order_is_as_in_the_golden_file(api: Space) -> None:
    api.clock.freeze("2026-01-01T00:00:00Z")
    assert Shop(api.url).order(LAMP_FOR_ADA).json() == json.loads(GOLDEN.read_text())


def test_what_was_sent_and_who_hears_of_it(api: Space) -> None:
    """The requests of this test, and the webhooks that it causes."""
    made = Shop(api.url).order(LAMP_FOR_ADA).json()
    api.assert_requested("POST", "/orders", times=1, json=LAMP_FOR_ADA, headers={"Idempotency-Key": "*"})
    assert api.webhooks.wait("order.created", within=2).body["data"] == made
    assert not api.unmatched


def test_an_order_can_be_made_again_when_its_key_has_expired(api: Space) -> None:
    """A day passes in milliseconds."""
    shop, headers = Shop(api.url), {"Idempotency-Key": "mine"}
    for hours, count in ((0, 1), (23, 1), (2, 2)):
        api.clock.advance(hours=hours)
        shop.http.post("/orders", json=LAMP_FOR_ADA, headers=headers)
        assert len(shop.orders()) == count
