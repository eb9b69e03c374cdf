"""`restkeeper docs`: the documentation of this version, which is in the package."""

import webbrowser
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from mimetypes import guess_type
from pathlib import Path
from socketserver import ThreadingTCPServer
from threading import Thread
from urllib.parse import unquote, urlsplit
from zipfile import BadZipFile, ZipFile

import click

import restkeeper

PACKAGE = Path(restkeeper.__file__).parent
PLACES = (PACKAGE / "site.zip", PACKAGE.parent / "build" / "site.zip")  # of a wheel; of a checkout, by `make docs`


class _Server(ThreadingTCPServer):
    """Serves the files of `site`. HTTPServer would look up the name of this machine, also in the network."""

    allow_reuse_address = True
    request_queue_size = 128  # connections that wait: else some of a browser's begin again after a second
    daemon_threads = True
    site: ZipFile


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30.0  # seconds for which a connection may be silent

    def do_GET(self) -> None:
        """Send a file of the site; for `/`, its first page."""
        try:
            name = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
            content = self.server.site.read(name)
        except (KeyError, ValueError):  # no such file; no path
            return self.send_error(HTTPStatus.NOT_FOUND)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", guess_type(name)[0] or "application/octet-stream")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: the pages are read by whoever has started the command."""


@click.command("docs")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0, the default: any free port.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def docs(port: int, no_browser: bool) -> None:
    """Show the documentation of this version in a browser.

    It is in the package: no network is needed. It is served to this machine only, at the address that is printed, until
    Ctrl-C.
    """
    place = next(filter(Path.is_file, PLACES), None)
    if place is None:
        raise click.ClickException(_elsewhere())
    try:
        site = ZipFile(place)
    except (OSError, BadZipFile) as error:
        raise click.ClickException(f"{place}: {error}") from None
    try:
        server = _Server(("127.0.0.1", port), _Handler)
    except OSError as error:
        raise click.ClickException(f"--port {port}: {error.strerror}") from None
    with server, site as server.site, suppress(KeyboardInterrupt):
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        click.echo(f"The documentation is at {address}\nStop it with Ctrl-C.")
        if not no_browser:
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.serve_forever()


def _elsewhere() -> str:
    """Where the documentation is, if it is not in the package."""
    checkout = PACKAGE.parent
    if (index := checkout / "docs" / "index.md").is_file():
        return f"the pages are not built: run `make docs` in {checkout}, or read {index}"
    source = f"in the source of Restkeeper {restkeeper.__version__}"
    return f"this installation has no pages: run `make docs` {source} and install it again, or read docs/index.md there"
