"""A client of the shop, which these tests are about: it sends again what may have failed."""

import time
from collections.abc import Callable
from uuid import uuid4

import httpx

ATTEMPTS = 4
LAMP_FOR_ADA = {
    "customer": "00000000-0000-7000-8000-000000000001",
    "lines": [{"product": "00000000-0000-7000-8000-000000000002", "quantity": 2}],
}


class Shop:
    """The shop below a URL. `has_keys` are for its POSTs, so that the shop does each of them once."""

    def __init__(self, url: str, *, has_keys: bool = True, pause: Callable[[float], object] = time.sleep) -> None:
        self.http = httpx.Client(base_url=url)
        self._has_keys, self._pause = has_keys, pause

    def order(self, body: object) -> httpx.Response:
        """Order something."""
        headers = {"Idempotency-Key": str(uuid4())} if self._has_keys else {}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = self.http.post("/orders", json=body, headers=headers)
            except httpx.TransportError:
                if attempt == ATTEMPTS:
                    raise
                continue
            if response.status_code not in (429, 503) or attempt == ATTEMPTS:
                break
            self._pause(float(response.headers.get("Retry-After", 0)))
        return response

    def orders(self) -> list[dict[str, object]]:
        """The first page of all orders."""
        return self.http.get("/orders").json()
