"""How a file is served, beside its content: what requests meet before the handlers of its service."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import random, uniform
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from flask import Request, Response, send_file
from werkzeug.exceptions import MethodNotAllowed

from restkeeper import exactjson
from restkeeper.clock import Clock
from restkeeper.errors import Unavailable
from restkeeper.exactjson import Buffer
from restkeeper.feature import Seams
from restkeeper.features.files.file import EDITED, SCHEMA
from restkeeper.features.files.reading import LONGEST_ITEM
from restkeeper.features.files.rewriting import Rule, read_rules, rewrite
from restkeeper.resources.call import KNOWN, lacking
from restkeeper.resources.items import CollectionReader
from restkeeper.resources.queries import ListRequest
from restkeeper.service import Service
from restkeeper.storage.interface import Query
from restkeeper.versions import prefix_of
from restkeeper.web.application import SAFE_METHODS, SLASH, Application, Check, Reply, Stage, Wsgi
from restkeeper.web.auth import caller, needs
from restkeeper.web.bodies import JSON, require_acceptable
from restkeeper.web.calls import current_call
from restkeeper.web.operations import Result, returns

OWN_PATHS = ("/api/", "/_/")  # the beginnings of routes that no rule rewrites
_MARKED = "restkeeper.slashes"  # in the WSGI environment: whether the path has `SLASH`
_MARK = SLASH.encode().decode("latin-1")  # in the form that a WSGI environment has
WHOLE = "/db"  # the path of all that is served


@dataclass(frozen=True)
class FileOptions:
    """How a file is served: `delay` has the least and the most seconds, `fail` a probability.

    The folders of `static` are served as well as `public`, and the file `routes` has rules that rewrite paths. Names of
    fields that refer to other collections end in `suffix`; the id of an item is in `id_name`. If `quiet`, no report
    is printed. The items of the collection `login` can log in.
    """

    saves: bool = True
    read_only: bool = False
    strict: bool = False
    delay: tuple[float, float] = (0.0, 0.0)
    fail: float = 0.0
    static: tuple[Path, ...] = ()
    routes: Path | None = None
    suffix: str = ""
    id_name: str = "id"
    quiet: bool = False
    login: str = ""


def install(service: Service, options: FileOptions, path: Path, arrays: Mapping[str, Buffer]) -> Seams:
    """Serve folders, `/db` and arrays, rewrite paths, and follow the options, for the file at a path.

    Raises FileError and OSError.
    """
    rules = read_rules(options.routes, {} if options.login else None) if options.routes else []
    folders = [folder for folder in (path.with_name("public"), *options.static) if folder.is_dir()]
    private = [path, path.with_suffix(SCHEMA), path.with_name("routes.py")]
    files = _StaticFiles(folders, private)
    app, guard, config = service.app, service.guard, service.config
    if guard.local_only and not (config.admin_key or config.jwt_jwks or options.login):
        guard.ignores_credentials = lambda: not service.store.page("keys", Query(limit=1)).bodies  # until one is made
    checks: list[Check] = [_read_slashes, files.send]
    if options.fail or options.delay[1]:
        checks.append(partial(_delay_or_fail, options, service.clock))
    if options.read_only:
        checks.append(_refuse_writes)

    def add_routes() -> None:
        for number, name in enumerate(arrays):
            view = _array(name, arrays)
            for prefix in ("", prefix_of(service.default_version)):
                app.add_url_rule(f"{prefix}/{name}", endpoint=f"array_{number}", view_func=view)
        if WHOLE not in {rule.rule for rule in app.url_map.iter_rules()}:  # a collection, or a route of routes.py
            app.add_url_rule(WHOLE, view_func=_whole(service, arrays))

    return Seams(
        arriving=(lambda following: _Paths(app, following, rules, files, config.max_url),),
        checking=tuple((Stage.EDGE, check) for check in checks),
        ready=(add_routes,),
    )


class _StaticFiles:
    """Files of folders, for a GET without a route: no file that begins with a dot, is elsewhere, or is `private`.

    A version of a private file that a write has kept is private, too. An index.html of a folder goes before the page
    of the service. No caller needs a credential for them.
    """

    def __init__(self, folders: Iterable[Path], private: Iterable[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._private = {file.resolve() for file in private}

    def find(self, path: str) -> Path | None:
        """The file of a path, if there is one; of a folder, its index.html."""
        for folder in self._folders if "/." not in path else ():
            with suppress(OSError, ValueError, RuntimeError):  # a name that is too long, or has NUL; a link to itself
                file = (folder / path.lstrip("/")).resolve()
                if file.is_dir():
                    file = (file / "index.html").resolve()
                elif path[-1:] == "/":
                    continue
                parts = file.relative_to(folder).parts  # ValueError: elsewhere
                is_hidden = any(name[0] == "." or name == "__pycache__" for name in parts)
                is_hidden |= file.with_name(file.name.removesuffix(EDITED)) in self._private
                if file.is_file() and not is_hidden:
                    return file
        return None

    def send(self, request: Request) -> Response | None:
        """The response with a file, if the request is for one."""
        if (request.url_rule and request.path != "/") or request.method not in ("GET", "HEAD"):
            return None
        file = self.find(request.path)
        return send_file(file, conditional=True, max_age=0) if file else None


class _Paths:
    """A WSGI application whose paths are rewritten, and then are the same with and without a slash at their end.

    Files, and routes that have that slash, stay as they are.
    """

    def __init__(self, app: Application, following: Wsgi, rules: list[Rule], files: _StaticFiles, max_url: int) -> None:
        self._app, self._next, self._rules, self._files, self._max_url = app, following, rules, files, max_url

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        _mark_slashes(environ)
        path = environ.get("PATH_INFO", "")
        # The pages of the service call its own paths: a rule for /api/* must not break them.
        is_own = path.startswith(OWN_PATHS) and len(path) <= self._max_url and self._has(path)
        if self._rules and not is_own:
            rewrite(environ, self._rules, self._max_url)
            path = environ.get("PATH_INFO", "")
        if 1 < len(path) <= self._max_url and path[-1] == "/" and path[-2] != "/":
            text = path.encode("latin-1").decode(errors="replace")
            is_file = environ["REQUEST_METHOD"] in ("GET", "HEAD") and self._files.find(text)
            if not is_file and not self._has(text) and self._has(text[:-1]):
                environ["PATH_INFO"] = path[:-1]
        return self._next(environ, start_response)

    def _has(self, path: str) -> bool:
        return bool(self._app.url_map.bind("localhost").allowed_methods(path))


def _mark_slashes(environ: dict[str, Any]) -> None:
    """Let an escaped slash be none that divides a path: an id can have it."""
    raw, path = environ.get("RAW_URI") or environ.get("REQUEST_URI", ""), environ.get("PATH_INFO", "")
    marked = unquote_to_bytes(re.sub("%2[Ff]", quote(SLASH), raw.partition("?")[0])).decode("latin-1")
    plain = marked.replace(_MARK, "/")
    start = len(plain) - len(path)  # the text before this is in SCRIPT_NAME
    if plain != marked and _MARK not in path and plain.endswith(path) and plain[:start] == marked[:start]:
        environ["PATH_INFO"], environ[_MARKED] = marked[start:], True


def _read_slashes(request: Request) -> None:
    if _MARKED not in request.environ:
        return
    if request.view_args is None:
        request.path = request.path.replace(SLASH, "/")
    else:
        request.view_args = {name: value.replace(SLASH, "/") for name, value in request.view_args.items()}


def _array(name: str, arrays: Mapping[str, Buffer]) -> Callable[[], Response]:
    """The handler of an array of other values than objects."""

    @needs(_scope(name))
    @returns(Result("The array.", {JSON: {"type": "array", "items": {}, "maxItems": LONGEST_ITEM // 2}}))
    def read_array() -> Response:
        """Read an array, as the file has it."""
        require_acceptable(JSON)
        return Reply(bytes(arrays[name]), content_type=JSON, headers={"Cache-Control": "no-store"})

    return read_array


def _scope(name: str) -> str:
    """The scope to read an array, in the form of the scopes of collections."""
    return f"{quote(name, safe='')}:read"


def _whole(service: Service, arrays: Mapping[str, Buffer]) -> Callable[[], Response]:
    """The handler of all that is served."""

    @needs(KNOWN)
    @returns(Result("Each collection, and each single item, by its name.", {JSON: {"type": "object"}}))
    def read_db() -> Response:
        """Read all that the file has, as it is now, to a caller that may read each collection of it."""
        require_acceptable(JSON)
        for scope in (*(resource.scope("read") for resource in service.resources), *map(_scope, arrays)):
            if not caller().may(scope):
                raise lacking(scope)
        items = service.writes[service.default_version].values()
        texts = _texts(service, [CollectionReader(each, current_call()) for each in items], arrays)
        return Reply(texts, content_type=JSON, headers={"Cache-Control": "no-store"})

    return read_db


def _texts(service: Service, readers: Iterable[CollectionReader], arrays: Mapping[str, Buffer]) -> Iterator[bytes]:
    """The parts of an object of all items that a caller sees: a page of them is in memory at a time."""
    before = b"{"
    for reader in readers:
        name, pages = reader.served.resource.public_name, _pages(service, reader)
        if reader.served.resource.singleton:
            (bodies,) = pages
            yield b"%b%b:%b" % (before, exactjson.dumps(name), bodies[0])
        else:
            yield b"%b%b:[" % (before, exactjson.dumps(name))
            for number, bodies in enumerate(pages):
                yield b"," * bool(number and bodies) + b",".join(bodies)
            yield b"]"
        before = b","
    for name, text in arrays.items():
        yield b"%b%b:%b" % (before, exactjson.dumps(name), bytes(text))
        before = b","
    yield b"}" if before == b"," else b"{}"


def _pages(service: Service, reader: CollectionReader) -> Iterator[list[bytes]]:
    """The items of a collection, page by page, in the order of its list: an item that stays is there once."""
    stored, limit = reader.served.stored, service.config.page_limit_max
    query, page = reader.query(ListRequest(Query(limit=limit), limit)), None
    while page is None or page.more:
        page = service.store.page(stored.name, query, service.config.page_bytes)
        bodies = reader.view.bodies(page)
        if stored.resource.singleton and not bodies:
            bodies = [stored.body(stored.initial)] if stored.initial else [b"{}"]
        yield bodies
        query = query._replace(after=page.last)


def _delay_or_fail(options: FileOptions, clock: Clock, request: Request) -> None:
    """Let all requests wait, and some get a 503."""
    clock.sleep(uniform(*options.delay))  # noqa: S311 - no secret
    if random() < options.fail:  # noqa: S311
        raise Unavailable("a fault that was asked for (--fail)")


def _refuse_writes(request: Request) -> None:
    """Refuse what may change something: also an action of routes.py."""
    if request.method not in SAFE_METHODS:
        raise MethodNotAllowed(SAFE_METHODS)
