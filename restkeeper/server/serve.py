"""The start of a service by `restkeeper serve` and `python app.py`: gunicorn with the settings of a deployment."""

import atexit
import errno
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from restkeeper.cli.loading import FILE, load_application, python_path
from restkeeper.config import Config, ConfigError
from restkeeper.feature import loaded
from restkeeper.features import SERVED_FILE

BACKLOG = 2048  # connections that wait while a program starts, as gunicorn's


class _Numbers(click.ParamType):  # type: ignore[type-arg]
    """One or two numbers, divided by what they are counted in."""

    def __init__(self, pattern: str, unit: float, shown: str) -> None:
        self.name, self._pattern, self._unit, self._shown = shown, pattern, unit, shown

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The first and the last of them."""
        if not (found := re.fullmatch(self._pattern, str(value))):
            self.fail(f"{value!r}: write it as {self._shown}")
        numbers = [float(each) / self._unit for each in found.groups() if each]
        return numbers[0], numbers[-1]


@click.command("serve")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".")
@click.option("--no-reload", is_flag=True, help="Do not start it again after a change of a file.")
def serve_folder(folder: Path, no_reload: bool) -> None:
    """Serve the service in FOLDER, by default the present folder.

    It starts again when a *.py of the folder is saved, added or removed. Only this machine can reach it, unless AUTH
    says otherwise. The environment configures it, as in a deployment: HOST, PORT, DATABASE_URL, AUTH and the others.
    """
    folder = folder.resolve()
    reloads = not no_reload and (folder / FILE).is_file()
    _serve(partial(load_application, folder), watched=folder if reloads else None)


class _FileCommand(click.Command):
    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without the name of the command, which nobody writes."""
        formatter.write_usage((ctx.parent or ctx).command_path, " ".join(self.collect_usage_pieces(ctx)))


_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command("FILE", cls=_FileCommand)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--port", "-p", type=click.IntRange(0, 65535), help="The port, by default PORT or 3000; 0: any free one.")
@click.option("--host", "-H", help="The address to listen on; another one than this machine's needs AUTH.")
@click.option("--no-save", is_flag=True, help="Leave the file as it is: changes are in memory.")
@click.option("--read-only", "--ro", is_flag=True, help="Only GET.")
@click.option("--strict", is_flag=True, help="Refuse fields that the file's items do not have.")
@click.option("--static", "-s", type=_FOLDER, multiple=True, help="A folder of files to serve, as well as public.")
@click.option(
    "--routes",
    "-r",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help='A JSON file with rules that rewrite paths: {"/api/*": "/$1"}.',
)
@click.option(
    "--foreignKeySuffix",
    "--fks",
    "suffix",
    default="",
    help="What ends the names of fields that refer to others, such as _ref; by default Id or _id.",
)
@click.option("--id", "-i", "id_name", default="id", help="The name of the members with the ids, such as _id.")
@click.option("--login", default="", metavar="NAME", help="Let the items of a collection log in; it protects nothing.")
@click.option("--watch", "-w", is_flag=True, help="Serve what is saved in the file: this is always so.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
@click.option(
    "--delay",
    "-d",
    type=_Numbers(r"(\d{1,5})(?:-(\d{1,5}))?", 1000, "300 or 300-800"),
    default="0",
    metavar="MS",
    help="Respond later: 300, or 300-800 milliseconds at random.",
)
@click.option(
    "--fail",
    type=_Numbers(r"(100|\d{1,2}(?:\.\d+)?)%?", 100, "5%"),
    default="0",
    metavar="PERCENT",
    help="So many requests get a 503 at random: 5%.",
)
def serve_file(
    file: Path, port: int | None, host: str | None, no_save: bool, routes: Path | None, watch: bool, **options: Any
) -> None:
    """Serve a JSON FILE: its arrays are collections, its objects single items. See docs/prototyping.md.

    What there is instead of other options of json-server is in docs/json-server.md.
    """
    file = file.absolute()
    given = {"PORT": port, "HOST": host}
    os.environ |= {name: str(value) for name, value in given.items() if value is not None}
    if "PORT" not in os.environ:
        os.environ.setdefault("HOST", "127.0.0.1")  # of a PORT that is set, the default can be another one
        os.environ["PORT"] = "3000"
    if options["quiet"]:
        os.environ["RESTKEEPER_WELCOME"] = "0"
    os.environ |= {"WEB_CONCURRENCY": "1", "RESTKEEPER_FILE": file.name}
    os.environ.setdefault("LOG_LEVEL", "warning")
    os.environ["DATABASE_URL"] = "memory://"
    for name in ("MAX_BODY", "MAX_ITEM"):
        os.environ.setdefault(name, str(10 * 1024 * 1024))
    if not no_save and os.environ.get("HARNESS", "0") in ("", "0"):
        _lock(file)
    options |= {"saves": not no_save, "fail": options["fail"][0], "routes": routes and routes.absolute()}
    options["static"] = tuple(each.absolute() for each in options["static"])
    _set_defaults()
    import_module("restkeeper.server.single").serve(partial(_application_of_file, file, options))


def _lock(file: Path) -> None:
    """Let no other program serve a file, until this one ends: a file beside it is locked, or the file if none can be.

    Exits if another one serves it. On Windows, none notices another one.
    """
    try:
        fcntl = import_module("fcntl")
    except ImportError:
        return
    target, own = file.resolve(), os.getpid()
    beside = target.with_name(f".{target.name}.lock")
    while True:
        try:
            lock = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)  # inherited, and never closed
        except OSError:
            beside, lock = target, os.open(target, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"restkeeper: {file.name} is served already, by another program: add --no-save")
        with suppress(FileNotFoundError):
            if os.stat(beside).st_ino == os.fstat(lock).st_ino:
                break
        os.close(lock)  # the former program has ended at this moment, and deleted it
    if beside != target:
        atexit.register(lambda: beside.unlink(missing_ok=True) if own == os.getpid() else None)


def _application_of_file(file: Path, options: Mapping[str, Any], succeed: Callable[[Any], None]) -> Any:
    """The application of a file; exits with one line if there can be none. See `features.files.served_file`."""
    return loaded(SERVED_FILE)(import_module("restkeeper.app").create_app, file, options, succeed)


def _set_defaults() -> None:
    """Set what the environment does not, for development."""
    os.environ.setdefault("AUTH", "open")  # only on this machine: Config enforces that
    os.environ.setdefault("WEBHOOK_WORKER", "inside")
    os.environ.setdefault("RESTKEEPER_WELCOME", "1")
    has_colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")  # https://no-color.org
    os.environ.setdefault("LOG_FORMAT", "colour" if has_colours else "short")


def _serve(load: Callable[[], Any], watched: Path | None = None) -> None:
    """Serve what `load` returns until the process is stopped.

    With a `watched` folder a child process does, which starts again after each change of its files.
    """
    _set_defaults()
    try:
        config = Config.from_env()
    except ConfigError as error:
        sys.exit(f"restkeeper: {error}")
    if config.database_url == "memory://":  # which belongs to one process
        os.environ.setdefault("WEB_CONCURRENCY", "1")
    is_inherited = "GUNICORN_FD" in os.environ or "RESTKEEPER_FD" in os.environ  # the socket, by USR2 or `reload`
    if not is_inherited and _is_taken(config.host, config.port):
        sys.exit(f"restkeeper: PORT='{config.port}': another program uses this port; set PORT to a free one")
    if watched:
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        try:
            listener = socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
        except OSError as error:
            sys.exit(f"restkeeper: HOST={config.host!r}, PORT='{config.port}': {error.strerror}")
        environ = {**os.environ, "PYTHONPATH": python_path()}
        command = [sys.executable, "-P", "-m", "restkeeper", "serve", "--no-reload", str(watched)]
        import_module("restkeeper.server.reload").keep_serving(command, watched, listener, environ)
    import_module("restkeeper.server.master").serve(load)


@click.command("harness")
@click.argument("folder", type=click.Path(path_type=Path, exists=True), default=".")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0, the default: any free port.")
@click.option("--ports", default="", help="Those of the spaces: 9000-9199; by default any free ones, each once.")
@click.option("--host", help="The address to listen on; another one than this machine's needs --allow-remote.")
@click.option("--allow-remote", is_flag=True, help="Let other machines do everything here.")
@click.option("--until-eof", is_flag=True, help="End with standard input, so with the program that started it.")
def serve_harness(folder: Path, port: int, ports: str, host: str | None, allow_remote: bool, until_eof: bool) -> None:
    """Serve the test harness of the service in FOLDER, by default the present folder, or of a JSON file.

    See docs/testing.md.

    It prints one line with its addresses, in JSON, and ends with Ctrl-C or SIGTERM. Nothing of it stays.
    """
    os.environ["RESTKEEPER_STDOUT"] = str(os.dup(1))  # for that line alone:
    os.dup2(2, 1)  # what the service prints is an error's or a log's
    if until_eof:
        os.environ["RESTKEEPER_LIFELINE"] = str(sys.stdin.fileno())
    os.environ |= {"PORT": str(port), "DATABASE_URL": "memory://", "WEB_CONCURRENCY": "1"}
    os.environ |= {"HARNESS": "remote" if allow_remote else "spaces", "HARNESS_PORTS": ports}
    defaults = {"HOST": "127.0.0.1", "RATE_LIMIT": "off", "WEBHOOK_ALLOW_PRIVATE": "1", "LOG_LEVEL": "warning"}
    defaults |= {"AUTH": "open-to-all"} if allow_remote else {}
    os.environ |= defaults | os.environ | ({"HOST": host} if host else {})
    if folder.is_file():
        serve_file.main([str(folder)])
    _serve(partial(load_application, folder.resolve()))


def serve(folder: Path) -> None:
    """Serve the service in a folder: the last line of its app.py, so that `python app.py` serves.

    This process becomes `restkeeper serve`, which patches modules before it imports them; it gets the arguments of
    `python app.py`.
    """
    os.environ["PYTHONPATH"] = python_path()
    os.execv(sys.executable, [sys.executable, "-m", "restkeeper", "serve", str(folder), *sys.argv[1:]])  # noqa: S606


def _is_taken(host: str, port: int) -> bool:
    """Whether another program listens there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
