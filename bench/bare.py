"""The first side to compare with: Flask views that return constants, on the same gunicorn settings."""

import os

from flask import Flask, Response

app = Flask(__name__)

# Bodies as large as ours: an item's, and pages of it.
SIZE = int(os.environ.get("BENCH_ITEM_BYTES", "400"))
ITEM = b'{"pad":"' + b"x" * (SIZE - 10) + b'"}'
PAGES = {limit: b"[" + b",".join([ITEM] * limit) + b"]" for limit in (20, 100)}
COUNTED = {"deliveries": 0}  # of one process


@app.get("/item")
def read_item() -> Response:
    return Response(ITEM, mimetype="application/json")


@app.get("/page/<int:limit>")
def read_page(limit: int) -> Response:
    return Response(PAGES[limit], mimetype="application/json")


@app.post("/hook")
def take_delivery() -> Response:
    COUNTED["deliveries"] += 1
    return Response(b"", 204)


@app.get("/hook")
def count_deliveries() -> Response:
    return Response(str(COUNTED["deliveries"]), mimetype="text/plain")
