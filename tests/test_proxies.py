"""Proxies: trusted ones give the address and the scheme of the caller; others are ignored."""

import os
import subprocess
import sys
from pathlib import Path

from flask import request

from restkeeper.config import Config
from tests.live import ROOT, Gunicorn, read_all
from tests.ports import free_ports
from tests.shop import create_app
from tests.waiting import until


def caller(hops: int, forwarded: str | None, proto: str | None = None) -> tuple[str, str]:
    app = create_app(Config(auth="open-to-all", trusted_proxies=hops))
    seen: list[tuple[str, str]] = []

    @app.before_request
    def see() -> None:
        seen.append((request.environ["REMOTE_ADDR"], request.scheme))

    headers = {"X-Forwarded-For": forwarded, "X-Forwarded-Proto": proto}
    sent = {name: value for name, value in headers.items() if value is not None}
    app.test_client().get("/", headers=sent, environ_base={"REMOTE_ADDR": "10.9.9.9"})
    return seen[0]


def test_only_trusted_proxies_give_the_address_and_the_scheme() -> None:
    """The caller is the peer of the farthest one; what a client writes before, or what is no address, is ignored."""
    for hops, forwarded, address in (
        *((0, "1.1.1.1", "10.9.9.9"), (1, "1.1.1.1", "1.1.1.1"), (1, "6.6.6.6, 1.1.1.1", "1.1.1.1")),
        *((2, "6.6.6.6, 1.1.1.1, 10.0.0.1", "1.1.1.1"), (3, "6.6.6.6,7.7.7.7,1.1.1.1,10.0.0.1,10.0.0.2", "1.1.1.1")),
        *((2, "1.1.1.1", "10.9.9.9"), (1, None, "10.9.9.9"), (1, "", "10.9.9.9"), (1, "1.1.1.1,", "10.9.9.9")),
        *((1, ", 1.1.1.1", "1.1.1.1"), (1, '6.6.6.6, ", 1.1.1.1', "1.1.1.1")),
        *((2, '6.6.6.6, "a\\, 1.1.1.1, 10.0.0.1', "1.1.1.1"), (1, "1.1.1.1:5555", "1.1.1.1")),
        *((1, "2001:db8::1", "2001:db8::1"), (1, "[2001:DB8:0::1]", "2001:db8::1")),
        *((1, "[2001:db8::1]:5555", "2001:db8::1"), (1, "fe80::1%<b>", "10.9.9.9")),
        *((1, "[2001:db8::1]" + "x" * 51, "2001:db8::1"), (1, "[2001:db8::1]" + "x" * 52, "10.9.9.9")),
        *((1, "unknown", "10.9.9.9"), (1, "_hidden", "10.9.9.9"), (1, "1.1.1.1.1", "10.9.9.9")),
        *((1, "1.1.1.01", "10.9.9.9"), (1, "6.6.6.6, for=1.1.1.1", "10.9.9.9"), (1, "1.1.1.1 admin", "10.9.9.9")),
    ):
        assert caller(hops, forwarded)[0] == address, (hops, forwarded)
    for hops, proto, scheme in (
        *((0, "https", "http"), (1, "https", "https"), (1, "HTTPS", "https"), (1, "https, http", "http")),
        *((2, "http, https, http", "https"), (2, "https", "http"), (1, "javascript", "http"), (1, "", "http")),
    ):
        assert caller(hops, None, proto=proto)[1] == scheme, (hops, proto)


def test_other_forwarded_headers_are_ignored() -> None:
    """Host, port and prefix are never read from a forwarded header, also not from Forwarded."""
    client = create_app(Config(auth="open-to-all", trusted_proxies=1, trusted_hosts=("localhost",))).test_client()
    fields = ("X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server", "Forwarded")
    response = client.get("/nothing", headers=dict.fromkeys(fields, "evil") | {"Forwarded": "for=6.6.6.6;host=evil"})
    assert response.json["type"] == "/problems/not-found" and "evil" not in response.text


def test_several_header_lines_are_one_list(tmp_path: Path) -> None:
    lines = b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7, 1.1.1.1\r\nX-Forwarded-Proto: https\r\n"
    settings = {"TRUSTED_PROXIES": "1", "LOG_FORMAT": "json", "TRUSTED_HOSTS": "x,127.0.0.1"}
    with Gunicorn(tmp_path, workers=1, AUTH="open-to-all", **settings) as server:
        with server.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\nConnection: close\r\n" + lines + b"\r\n")
            response = read_all(client)
    assert b"https://x/products" in response
    (line,) = [line for line in server.log.read_text().splitlines() if '"path":"/"' in line]
    assert '"caller":"1.1.1.1"' in line
    assert "TRUSTED_PROXIES=1:" not in server.log.read_text()  # only this machine reaches it


def test_a_start_where_others_could_be_the_proxy_says_so(tmp_path: Path) -> None:
    """On every address, as under honcho and on platforms: forged addresses escape the limit of wrong credentials."""
    settings = {"DATABASE_URL": "memory://", "WEB_CONCURRENCY": "1", "TRUSTED_PROXIES": "1"}
    environ = {"PATH": os.environ["PATH"], "AUTH": "required", "PORT": str(free_ports(1)[0]), **settings}
    command, log = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py"], tmp_path / "log.txt"
    with log.open("w") as out, subprocess.Popen(command, cwd=ROOT, env=environ, stdout=out, stderr=out) as running:
        try:
            until(lambda: "ADMIN_KEY" in log.read_text() or running.poll() is not None)  # the last line of a start
        finally:
            running.terminate()
    assert "TRUSTED_PROXIES=1: who reaches 0.0.0.0 without your proxies" in log.read_text()


def test_without_the_setting_a_proxy_is_a_client(server: Gunicorn) -> None:
    assert server.get("/nothing", {"X-Forwarded-For": "1.1.1.1", "X-Request-Id": "np"}).status == 403
    (line,) = [line for line in server.log.read_text().splitlines() if '"np"' in line]
    assert '"caller":"127.0.0.1"' in line
