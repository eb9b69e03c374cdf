"""For `pytest -n 2`: each process has a server, and each test a shop of its own, with the same data."""

import pytest

from client import LAMP_FOR_ADA, Shop
from restkeeper import Space


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.restkeeper(seed="data.json")
def test_tests_see_nothing_of_each_other(api: Space, number: int) -> None:
    shop = Shop(api.url)
    for _ in range(number):
        shop.order(LAMP_FOR_ADA)
    assert shop.http.get("/orders").headers["X-Total-Count"] == str(number)
