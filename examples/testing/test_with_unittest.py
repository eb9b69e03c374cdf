"""unittest, and nothing that is not in Python: `python -m unittest test_with_unittest.py`."""

import json
import unittest
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from restkeeper import LiveServer

FOLDER = Path(__file__).parent


class OrderTest(unittest.TestCase):
    """Tests of what the shop does for a client."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.enterClassContext(LiveServer(FOLDER.parent / "shop"))

    def setUp(self) -> None:
        self.api = self.enterContext(self.server.space(seed=FOLDER / "data.json"))

    def post(self, path: str, body: object) -> object:
        request = Request(self.api.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request) as response:
            return json.load(response)

    def test_a_sku_is_unique(self) -> None:
        with self.assertRaises(HTTPError) as refused:
            self.post("/products", {"name": "Other lamp", "sku": "LAMP-1", "price": 1})
        self.assertEqual(refused.exception.code, 409)

    def test_a_proxy_that_fails_once(self) -> None:
        """Each fault that was declared has met a request; what was sent is as expected."""
        self.api.faults.respond("POST", "/products", 502, text="<html>", content_type="text/html", times=1)
        lamp = {"name": "Other lamp", "sku": "LAMP-2", "price": 1}
        with self.assertRaises(HTTPError) as failed:
            self.post("/products", lamp)
        self.assertEqual(failed.exception.read(), b"<html>")
        self.post("/products", lamp)
        self.api.assert_requested("POST", "/products", times=2, json=lamp)
        self.assertEqual(self.api.faults.unmet, [])

    def test_a_product_that_is_new(self) -> None:
        self.api.reset()
        self.assertEqual(self.post("/products", {"name": "Lamp", "sku": "LAMP-1", "price": 1})["stock"], 0)
