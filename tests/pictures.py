"""Make the pictures of the README with headless Chromium: `make pictures`."""

import json
import sys
from base64 import b64decode
from html import escape
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from restkeeper import LiveServer
from tests.browser import CHROMIUM, OPTIONS, Tab
from tests.live import ROOT

FOLDER = ROOT / "docs" / "pictures"
WIDTH = 1200  # pixels
PICTURES = ("browse", "file")
DATA = {
    "posts": [{"id": 1, "title": "Hello", "views": 100}, {"id": 2, "title": "World", "views": 200}],
    "comments": [{"id": "a1", "text": "Nice", "postId": 1}],
    "profile": {"name": "typicode"},
}
CALLS = ("posts?sort=-views&limit=1", "posts/1/comments", "comments?embed=post")
TERMINAL = """\
<body style="margin: 0; background: #1e2227; color: #d7dae0; font: 20px/1.5 monospace; padding: 24px 32px">
<pre style="margin: 0; font: inherit; white-space: pre-wrap">{}</pre>"""

FIELDS = ("name", "sku", "price", "currency", "stock", "status", "tags")
PRODUCTS = (
    ("Desk lamp", "LAMP-1", 49.9, "EUR", 12, "active", ["office", "light"]),
    ("Office chair", "CHAIR-1", 189, "EUR", 4, "active", ["office"]),
    ("Notebook", "NOTE-1", 3.5, "EUR", 250, "active", ["paper"]),
    ("Fountain pen", "PEN-1", 24.99, "EUR", 0, "draft", ["paper"]),
    ("Bookshelf", "SHELF-2", 129, "EUR", 7, "active", ["office", "wood"]),
    ("Standing desk", "DESK-3", 449, "EUR", 3, "active", ["office", "wood"]),
    ("Wall clock", "CLOCK-1", 19.95, "EUR", 31, "active", ["home"]),
    ("Floor lamp", "LAMP-2", 89, "EUR", 0, "archived", ["home", "light"]),
    ("Coat stand", "STAND-1", 59.5, "EUR", 9, "active", ["home", "wood"]),
    ("Waste paper basket", "BIN-1", 12, "EUR", 64, "active", ["office"]),
)


def of_terminal() -> str:
    """A page with what a JSON file as a service prints, and what some requests get."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "db.json")
        file.write_text(json.dumps(DATA))
        command = [sys.executable, "-m", "restkeeper", file.name]
        environ = {"PYTHONPATH": str(ROOT)}
        with Popen(command, cwd=folder, env=environ, stdout=PIPE, stderr=PIPE, text=True) as running:
            assert running.stdout and running.stderr
            lines = list(iter(running.stdout.readline, "Stop it with Ctrl-C.\n"))
            shown = [("restkeeper db.json", "".join(lines).strip())]
            for call in CALLS:
                with urlopen(f"http://127.0.0.1:3000/{call}") as response:
                    shown.append((f"curl 'localhost:3000/{call}'", response.read().decode()))
            running.terminate()
            running.communicate()
    texts = (f'<b style="color: #8fd18f">$ {escape(command)}</b>\n{escape(output)}\n' for command, output in shown)
    return TERMINAL.format("\n".join(texts))


def main() -> None:
    """Write a picture of `/browse`, of the service at the top with some products, and one of a terminal."""
    if CHROMIUM is None:
        raise SystemExit("there is no Chromium: install it")
    products = [dict(zip(FIELDS, values, strict=True)) for values in PRODUCTS]
    with TemporaryDirectory() as folder, LiveServer(ROOT) as server, server.space(seed={"products": products}) as space:
        terminal = Path(folder, "terminal.html")
        terminal.write_text(of_terminal(), encoding="utf-8")
        with Popen([CHROMIUM, *OPTIONS, f"--user-data-dir={folder}"], stderr=PIPE, text=True) as running:
            assert running.stderr is not None
            tab = Tab(next(line.split()[-1] for line in running.stderr if line.startswith("DevTools listening on")))
            tab.call("Emulation.setScrollbarsHidden", hidden=True)
            for name, address, content, height in (
                ("browse", f"{space.url}/browse#/list/products", "tbody tr", 750),
                ("file", terminal.as_uri(), "pre", 520),
            ):
                size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
                tab.call("Emulation.setDeviceMetricsOverride", **size)
                tab.open(address)
                tab.shown(content)
                picture = tab.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
                (FOLDER / f"{name}.png").write_bytes(b64decode(picture))
            tab.close()
            running.terminate()
            running.stderr.read()


if __name__ == "__main__":
    main()
