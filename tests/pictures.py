"""Make the pictures of the README with headless Chromium: `make pictures`."""

from base64 import b64decode
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

from restkeeper import LiveServer
from tests.browser import CHROMIUM, OPTIONS, Tab
from tests.live import ROOT

FOLDER = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1200, 750
PICTURES = {  # of a page: when it shows the first of these elements, from the second one on
    "browse": ("browse#/list/products", "tbody tr", "body"),
    "docs": ("docs", ".opblock", ".opblock-tag-section"),
}

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


def main() -> None:
    """Write a picture of each page, of the service at the top with some products."""
    if CHROMIUM is None:
        raise SystemExit("there is no Chromium: install it")
    products = [dict(zip(FIELDS, values, strict=True)) for values in PRODUCTS]
    with TemporaryDirectory() as folder, LiveServer(ROOT) as server, server.space(seed={"products": products}) as space:
        with Popen([CHROMIUM, *OPTIONS, f"--user-data-dir={folder}"], stderr=PIPE, text=True) as running:
            assert running.stderr is not None
            tab = Tab(next(line.split()[-1] for line in running.stderr if line.startswith("DevTools listening on")))
            size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
            tab.call("Emulation.setDeviceMetricsOverride", **size)
            tab.call("Emulation.setScrollbarsHidden", hidden=True)
            for name, (page, content, top) in PICTURES.items():
                tab.open(f"{space.url}/{page}")
                tab.shown(content)
                tab.run(f"document.querySelector({top!r}).scrollIntoView()")
                picture = tab.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
                (FOLDER / f"{name}.png").write_bytes(b64decode(picture))
            tab.close()
            running.terminate()
            running.stderr.read()


if __name__ == "__main__":
    main()
