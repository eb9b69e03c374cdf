"""Rules that rewrite paths, as `--routes` of json-server 0.17 has them: {"/api/*": "/$1", "/:a/:id/show": "/:a/:id"}.

A rule that matches is applied, then the next one looks at the result. A pattern is compared with the whole path without
regard to case, and with the query if it has one; of another query than its own, the rest stays. Matching takes time by
the length of a path: no pattern can match in two ways.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from restkeeper.errors import shortened
from restkeeper.features.files.reading import FileError, load_json
from restkeeper.web.application import UNESCAPED

MOST_RULES = 100
MODES = ("400", "440", "444", "600", "640", "644", "660", "664", "666")  # of guards: see `login`
LONGEST = 300  # characters of a pattern, and of a target

_PART = re.compile(r"\\(.)|:(\w+)|(\*)|([^\\:*]+|.)", re.ASCII | re.DOTALL)
_USE = re.compile(r"\$(\d+)|:(\w+)", re.ASCII)
_ENDS = "/?&"  # a parameter holds none of these
_PATH = re.sub("[&+]", "", UNESCAPED)  # characters that a path and a query can have


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


def rewrite(environ: dict[str, Any], rules: list[Rule], longest: int) -> None:
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
