"""The documentation: pages that are made from the code, and the site, which `restkeeper docs` serves."""

import json
import os
import re
import runpy
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

import restkeeper
from restkeeper.__main__ import main
from restkeeper.cli import docs
from tests.browser import Tab
from tests.live import ROOT
from tests.ports import free_ports
from tests.waiting import SECONDS

FOUND = "[...document.querySelectorAll('#search-results li a')].map(link => link.innerText).join('|')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a warning, such as one of a dead link, ends it."""
    folder = tmp_path_factory.mktemp("site")
    line = re.findall(r"sphinx-build (.*) -d build/doctrees \. build/site\b", (ROOT / "Makefile").read_text(), re.M)
    command = [sys.executable, "-m", "sphinx", *line[0].split(), "-d", folder / "doctrees", ".", folder / "html"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Addresses(HTMLParser):
    """What a page loads, and the pages that its side bar leads to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.pages: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a" and "reference internal" in values.get("class", ""):
            self.pages.append(values["href"].partition("#")[0])
        elif tag == "link" and values.get("rel") not in ("stylesheet", "icon"):
            return
        elif tag in ("link", "script", "img", "iframe", "source"):
            self.loaded.append(values.get("src") or values.get("href", ""))


@pytest.mark.parametrize("name", ["cli", "reference"])
def test_a_page_that_is_made_is_up_to_date(name: str) -> None:
    """If not, run: python docs/cli.py, python docs/reference.py."""
    module = runpy.run_path(str(ROOT / "docs" / f"{name}.py"))
    assert module["page"]() == module["PAGE"].read_text(encoding="utf-8")


def test_the_reference_has_each_public_name() -> None:
    """Once, in one of its parts."""
    parts = runpy.run_path(str(ROOT / "docs" / "reference.py"))["PARTS"]
    assert sorted(name for _, names in parts.values() for name in names) == restkeeper.__all__


def test_the_site_is_complete_and_small(site: Path) -> None:
    """Its side bar leads to each page, and nothing of another host is loaded."""
    folder = site / "docs"
    pages = {page.relative_to(folder.parent) for page in site.rglob("*.html")}
    first = Addresses(folder / "index.html")
    linked = {Path(os.path.normpath(f"docs/{page}")) for page in first.pages if page}
    assert {str(page) for page in pages - linked} == {"index.html", "search.html", "docs/index.html"}
    for page in pages:
        loaded = Addresses(site / page).loaded
        assert [address for address in loaded if re.match(r"\w+:|//", address)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\((?!['\"]?data:)", style.read_text(encoding="utf-8")), style
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 3_000_000


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The address that `restkeeper docs` prints, for an installation with the site."""
    archive = str(site.with_suffix(".zip"))
    code = f"from pathlib import Path; from restkeeper.cli import docs; docs.PLACES = [Path({archive!r})]; docs.docs()"
    command = [sys.executable, "-c", code, "--no-browser"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        yield running.stdout.readline().removeprefix("The documentation is at ").strip()
        running.terminate()


def test_docs_serves_the_site(address: str) -> None:
    """At the address that it prints; the first page leads to the index."""
    with urlopen(address, timeout=SECONDS) as response:  # noqa: S310 - our own server
        (target,) = re.findall(r'url=([^"]*)"', response.read().decode())
    with urlopen(address + target, timeout=SECONDS) as response:  # noqa: S310
        assert "<h1>Documentation" in response.read().decode()


@pytest.mark.matrix
@pytest.mark.parametrize("way", ["file", "http"])
def test_the_search_finds_idempotency_keys(way: str, site: Path, address: str, tab: Tab) -> None:
    """Also in the files alone; a browser loads nothing of another host."""
    base = address if way == "http" else f"{site.as_uri()}/"
    tab.open(f"{base}search.html?q=idempotency")
    tab.shown("#search-results li a")
    assert "Writes > Idempotency keys" in str(tab.run(FOUND)).split("|")
    tab.open(f"{base}docs/architecture.html")
    widths = "JSON.stringify([...document.images].map(image => image.naturalWidth))"
    assert all(json.loads(tab.run(widths)))
    urls = [event["request"]["url"] for event in tab.parameters_of("Network.requestWillBeSent")]
    assert [url for url in urls if not url.startswith((base, "data:", "about:"))] == []


@pytest.mark.parametrize("path", ["none.html", "..", "docs/../../passwd", "docs%2F..%2Findex.html", "docs/"])
def test_docs_serves_nothing_else(path: str, address: str) -> None:
    with pytest.raises(HTTPError) as raised:
        urlopen(address + path, timeout=SECONDS)  # noqa: S310
    with raised.value as response:
        assert response.status == 404


def test_docs_ends_a_silent_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs._Handler, "timeout", 0.01)
    with docs._Server(("127.0.0.1", 0), docs._Handler) as server:
        with socket.create_connection(server.server_address, SECONDS) as client:
            server.handle_request()
            assert client.recv(1) == b""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site without a page."""
    zipfile.ZipFile(tmp_path / "site.zip", "w").close()
    monkeypatch.setattr(docs, "PLACES", [tmp_path / "site.zip"])


@pytest.mark.usefixtures("archive")
def test_docs_opens_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the address that it prints. A browser that is not there is no error."""
    opened: list[str] = []

    class Server(docs._Server):
        def serve_forever(self, poll_interval: float = 0.5) -> None:
            raise KeyboardInterrupt

    class Thread:
        def __init__(self, target: object, args: tuple[str], daemon: bool) -> None:
            opened.append(args[0])

        def start(self) -> None:
            pass

    monkeypatch.setattr(docs, "_Server", Server)
    monkeypatch.setattr(docs, "Thread", Thread)
    (port,) = free_ports(1)
    run = CliRunner().invoke(main, ["docs", "--port", str(port)])
    assert (run.exit_code, opened) == (0, [f"http://127.0.0.1:{port}/"])
    assert run.output == f"The documentation is at {opened[0]}\nStop it with Ctrl-C.\n"


def test_docs_says_where_the_pages_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the site is not built: in a checkout, and in an installation of a source."""
    monkeypatch.setattr(docs, "PLACES", [tmp_path])
    run = CliRunner().invoke(main, ["docs"])
    assert run.exit_code == 1
    assert run.output == f"Error: the pages are not built: run `make docs` in {ROOT}, or read {ROOT}/docs/index.md\n"
    monkeypatch.setattr(docs, "PACKAGE", tmp_path / "restkeeper")
    run = CliRunner().invoke(main, ["docs"])
    source = f"in the source of Restkeeper {restkeeper.__version__}"
    remedy = f"run `make docs` {source} and install it again, or read docs/index.md there"
    assert run.output == f"Error: this installation has no pages: {remedy}\n"


@pytest.mark.usefixtures("archive")
def test_docs_names_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        run = CliRunner().invoke(main, ["docs", "--port", port, "--no-browser"])
    assert (run.exit_code, run.output) == (1, f"Error: --port {port}: Address already in use\n")
