"""The paths of requests: rules that rewrite them, slashes, and files of folders.

The rules are those of `--routes` of json-server 0.17: {"/api/*": "/$1", "/:a/:id/show": "/:a/:id"}. A rule that matches
is applied, then the next one looks at the result. A pattern is compared with the whole path without regard to case, and
with the query if it has one; of another query than its own, the rest stays. Matching takes time by the length of a
path: no pattern can match in two ways.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from flask import Request, Response, send_file

from restkeeper.errors import shortened
from restkeeper.features.files.content import FileError, load_json
from restkeeper.features.files.file import EDITED
from restkeeper.web.application import SLASH, UNESCAPED, Application, Wsgi

MOST_RULES = 100
MODES = ("400", "440", "444", "600", "640", "644", "660", "664", "666")  # of guards: see `login`
LONGEST = 300  # characters of a pattern, and of a target

_PART = re.compile(r"\\(.)|:(\w+)|(\*)|([^\\:*]+|.)", re.ASCII | re.DOTALL)
_USE = re.compile(r"\$(\d+)|:(\w+)", re.ASCII)
_ENDS = "/?&"  # a parameter holds none of these
_PATH = re.sub("[&+]", "", UNESCAPED)  # characters that a path and a query can have
_OWN = ("/api/", "/_/")  # the beginnings of routes that no rule rewrites
_MARKED = "restkeeper.slashes"  # in the WSGI environment: whether the path has `SLASH`
_MARK = SLASH.encode().decode("latin-1")  # in the form that a WSGI environment has


class Rule(NamedTuple):
    """What is matched, a function of the match that returns the target, and whether it only removes a prefix."""

    pattern: re.Pattern[str]
    target: Callable[[re.Match[str]], str]
    is_prefix: bool


def read_rules(file: Path, guards: dict[str, str] | None = None) -> list[Rule]:
    """The rules of a file, in its order; `guards` gets the modes of collections. Raises FileError, and OSError."""
    rules = load_json(file.name, file.read_bytes())
    if not isinstance(rules, dict) or len(rules) > MOST_RULES:
        raise FileError(f'{file.name}: must be an object of at most {MOST_RULES} rules, such as {{"/api/*": "/$1"}}')
    modes = {name: str(mode) for name, mode in rules.items() if name[:1] != "/" and str(mode).isdecimal()}
    if wrong := next((name for name, mode in modes.items() if guards is None or mode not in MODES), ""):
        raise FileError(f"{file.name}: {wrong!r}: a guard needs --login, and is one of {', '.join(MODES)}")
    (guards if guards is not None else {}).update(modes)
    try:
        return [rule_of(pattern, target) for pattern, target in rules.items() if pattern not in modes]
    except ValueError as error:
        raise FileError(f"{file.name}: {error}") from None


def rule_of(pattern: str, target: Any) -> Rule:
    """A rule. Raises ValueError for a pattern or target that is not understood."""
    quoted = f"{shortened(pattern)!r}"
    for side in (pattern, target):
        if not isinstance(side, str) or side[:1] != "/" or len(side) > LONGEST:
            raise ValueError(f"{quoted}: both sides must be texts of 1 to {LONGEST} characters that begin with /")
    if re.search(r"[()]|:\w+[?+*]", pattern, re.ASCII):
        raise ValueError(f"{quoted}: regular expressions are not understood: use :name, * and \\\\? before a query")
    regex, names, last, in_query = "", list[str](), "", False  # `last` is a wildcard that nothing has ended yet
    for escaped, name, star, text in _PART.findall(pattern):
        if name or star:
            if last or (star and "*" in names):
                reason = f"between two of {_ENDS} can be one :name or *, and in all one *"
                raise ValueError(f"{quoted}: {reason}: write :name for one part of a path, or a rule for each path")
            names.append(last := name or star)
            regex += "(.*)" if star else f"([^{_ENDS}]+)"
            continue
        literal = escaped or text
        if last == "*" and literal[0] not in _ENDS:
            raise ValueError(f"{quoted}: after * can be only one of {_ENDS}")
        last = "" if set(literal) & set(_ENDS) else last
        before, mark, after = ("", "", literal) if in_query else literal.partition("?")
        in_query = in_query or bool(mark)
        regex += re.escape(quote(before, f"{_PATH}%") + mark + quote(after, f"{UNESCAPED}?%"))
    for use in _USE.finditer(target):
        if not (0 < int(use[1]) <= len(names) if use[1] else use[2] in names):
            raise ValueError(f"{quoted}: there is no {use[0]}, which {shortened(target)!r} has")

    def fill(match: re.Match[str]) -> str:
        address = _USE.sub(lambda use: match[int(use[1])] if use[1] else match[names.index(use[2]) + 1], target)
        return address + ("&" if "?" in address else "?") + match["rest"] if match["rest"] else address

    rest = "&" if in_query else r"\?"
    matched = re.compile(f"{regex}/?(?:{rest}(?P<rest>.*))?", re.ASCII | re.IGNORECASE | re.DOTALL)
    return Rule(matched, fill, names == ["*"] and pattern[-2:] == "/*" and target == "/$1")


def rewrite(environ: dict[str, Any], rules: Sequence[Rule], longest: int) -> None:
    """Apply the rules to the request with this WSGI environment.

    One whose path and query have more than `longest` bytes, before or after that, still has more. A prefix that is
    removed becomes a part of SCRIPT_NAME, so that the addresses in responses have it.
    """
    path, query = environ.get("PATH_INFO", ""), environ.get("QUERY_STRING", "")
    if len(path) + len(query) > longest:
        return
    before = address = quote(path.encode("latin-1"), _PATH) + f"?{query}" * bool(query)
    prefix = ""
    for rule in rules:
        if match := rule.pattern.fullmatch(address):
            prefix += address[: match.start(1) - 1] if rule.is_prefix else ""
            if len(address := rule.target(match)) > 3 * longest:  # escaped, a byte has three
                break
    if address != before:
        path, _, query = address.partition("?")
        environ["PATH_INFO"] = unquote_to_bytes(path).decode("latin-1")[: longest + 1]
        environ["QUERY_STRING"] = query[: longest + 1]
        environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + unquote_to_bytes(prefix).decode("latin-1")


class Paths:
    """The paths of the requests to an application: rewritten, then the same with and without a slash at their end.

    A GET without a route is for a file of the `folders`: no file that begins with a dot, is elsewhere, or is `private`.
    A version of a private file that a write has kept is private, too. An index.html of a folder goes before the page of
    the service. No caller needs a credential for files. Files, and routes that end in a slash, keep this slash.
    """

    def __init__(
        self, app: Application, rules: Sequence[Rule], folders: Sequence[Path], private: Sequence[Path], max_url: int
    ) -> None:
        self._app, self._rules, self._max_url = app, rules, max_url
        self._folders = [folder.resolve() for folder in folders]
        self._private = {file.resolve() for file in private}

    def arriving(self, following: Wsgi) -> Wsgi:
        """See `Seams`."""

        def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            _mark_slashes(environ)
            path = environ.get("PATH_INFO", "")
            # The pages of the service call its own paths: a rule for /api/* must not break them.
            is_own = path.startswith(_OWN) and len(path) <= self._max_url and self._has(path)
            if self._rules and not is_own:
                rewrite(environ, self._rules, self._max_url)
                path = environ.get("PATH_INFO", "")
            if 1 < len(path) <= self._max_url and path[-1] == "/" and path[-2] != "/":
                text = path.encode("latin-1").decode(errors="replace")
                is_file = environ["REQUEST_METHOD"] in ("GET", "HEAD") and self._file(text)
                if not is_file and not self._has(text) and self._has(text[:-1]):
                    environ["PATH_INFO"] = path[:-1]
            return following(environ, start_response)

        return serve

    def answer(self, request: Request) -> Response | None:
        """The response with a file, if the request is for a file. An escaped slash becomes one again."""
        if _MARKED in request.environ and request.view_args is not None:
            request.view_args = {name: value.replace(SLASH, "/") for name, value in request.view_args.items()}
        elif _MARKED in request.environ:
            request.path = request.path.replace(SLASH, "/")
        if (request.url_rule and request.path != "/") or request.method not in ("GET", "HEAD"):
            return None
        file = self._file(request.path)
        return send_file(file, conditional=True, max_age=0) if file else None

    def _has(self, path: str) -> bool:
        return bool(self._app.url_map.bind("localhost").allowed_methods(path))

    def _file(self, path: str) -> Path | None:
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


def _mark_slashes(environ: dict[str, Any]) -> None:
    """Let an escaped slash be none that divides a path: an id can have it."""
    raw, path = environ.get("RAW_URI") or environ.get("REQUEST_URI", ""), environ.get("PATH_INFO", "")
    marked = unquote_to_bytes(re.sub("%2[Ff]", quote(SLASH), raw.partition("?")[0])).decode("latin-1")
    plain = marked.replace(_MARK, "/")
    start = len(plain) - len(path)  # the text before this is in SCRIPT_NAME
    if plain != marked and _MARK not in path and plain.endswith(path) and plain[:start] == marked[:start]:
        environ["PATH_INFO"], environ[_MARKED] = marked[start:], True
