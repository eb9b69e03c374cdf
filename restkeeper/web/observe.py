"""What operators see of a request: its id and one log line."""

import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from importlib import import_module
from random import getrandbits
from typing import Any
from urllib.parse import quote

import orjson
from flask import Request, Response
from flask import request as current_request

from restkeeper.clock import rfc3339
from restkeeper.web.application import Application, Stage
from restkeeper.web.auth import name_of

_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,127}")

# Keys in the WSGI environment, which is at hand wherever the request is.
BEGAN = "restkeeper.began"  # by time.perf_counter
_REQUEST_ID = "restkeeper.request_id"
DEPRECATED = "restkeeper.deprecated"  # the deprecations that the request has used, if there are any

_PLAIN = "/:<>(),;@"  # besides letters and digits, the characters that need no escape in a text line
_SECRET = re.compile(rb"(rk_[0-9a-f]{16}_)[\w-]+")  # of a key, whose id may be known; see `features.keys`
_UNESCAPED = re.compile(rf"[\w.~{_PLAIN}-]*", re.ASCII)

Line = dict[str, Any]
LONGEST_PATH = 1000  # characters of a path in a line
STDERR = 2


def install(
    app: Application,
    access_log: Callable[[Line], None] | None,
    *,
    now: Callable[[], float] = time.time,
    details: bool = False,
) -> None:
    """Give every request of `app` an id, and every response its log line, dated by `now`, also with `details`."""

    def begin(request: Request) -> None:
        environ = request.environ
        environ[BEGAN] = time.perf_counter()
        sent = environ.get("HTTP_X_REQUEST_ID", "")
        environ[_REQUEST_ID] = sent if _SANE_ID.fullmatch(sent) else f"{getrandbits(128):032x}"

    def end(request: Request, response: Response) -> None:
        environ = request.environ
        response.headers.add("X-Request-Id", environ[_REQUEST_ID])
        if not (log := access_log):
            return
        line = {
            "time": _milliseconds(now()),
            "level": "info",
            "event": "request",
            "request_id": environ[_REQUEST_ID],
            "caller": name_of(environ),
            "method": request.method,
            "path": request.path[:LONGEST_PATH],
            "route": request.url_rule.rule if request.url_rule else "(none)",
            "status": response.status_code,
            "ms": round((time.perf_counter() - environ[BEGAN]) * 1000, 3),
        }
        if used := environ.get(DEPRECATED):
            line["deprecated"] = ", ".join([deprecation.name for deprecation in used])
        if details and response.mimetype == "application/problem+json":
            line["problem"] = orjson.loads(response.get_data())["message"]
        if type(response.response) is list or request.method == "HEAD" or response.direct_passthrough:
            log(line)
        else:  # it has not ended

            def write() -> None:
                moment, seconds = _milliseconds(now()), time.perf_counter() - environ[BEGAN]
                log({**line, "time": moment, "ms": round(seconds * 1000, 3)})

            response.call_on_close(write)

    app.checking.add(begin, stage=Stage.EDGE)
    app.answered.add(end)


def _milliseconds(moment: float) -> str:
    """A moment as RFC 3339 with milliseconds; its second is formatted once."""
    seconds = int(moment)
    return f"{_second(seconds)}.{int((moment - seconds) * 1000):03}Z"


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return rfc3339(seconds, "seconds").removesuffix("Z")


def access_log(log_format: str, level: str) -> Callable[[Line], None] | None:
    """What writes a request's line to standard error, in a form of `SHAPES`; None where `level` leaves such lines out.

    It is one system call and not a logging.Logger, which would cost more than reading the item.
    """
    if level not in ("debug", "info"):
        return None
    shape = _shape_of(log_format)

    def write(line: Line) -> None:
        with suppress(OSError):  # a full or missing log must not make a committed request fail
            os.write(STDERR, shape(line))

    return write


def _shape_of(log_format: str) -> Callable[[Line], bytes]:
    """How a line is written, without the secret of a key that a client has sent in a path."""
    shape = SHAPES[log_format]
    return lambda line: _SECRET.sub(rb"\1***", written) if b"rk_" in (written := shape(line)) else written


def _json_line(line: Line) -> bytes:
    return orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)


def _text_line(line: Line) -> bytes:
    """Time, level and event, then name=value; one line whatever a client sent, but for the lines of an exception."""
    fields = {name: str(value) for name, value in line.items() if name not in ("time", "level", "event", "exception")}
    pairs = [f"{name}={text if _UNESCAPED.fullmatch(text) else quote(text, _PLAIN)}" for name, text in fields.items()]
    text = " ".join([line["time"], line["level"], line["event"], *pairs])
    if "exception" in line:
        text = f"{text}\n{line['exception']}"
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def _short_line(line: Line, colour: Callable[[object, int], str] = lambda text, code: str(text)) -> bytes:
    """A line for a developer: the time of day and the response; below it the problem."""
    lines = [colour(line["time"][11:19], _DIM)]
    if status := line.get("status"):
        coloured = colour(status, _COLOURS[status // 100 - 1])
        lines[0] = f"{lines[0]} {coloured} {line['method']} {_printable(line['path'])} {line['ms']:.1f} ms"
        lines[0] += f", deprecated: {line['deprecated']}" if "deprecated" in line else ""
    else:
        lines[0] = f"{lines[0]} {colour(line['level'], _LEVELS.get(line['level'], _DIM))} {line['event']}"
    if problem := line.get("problem"):
        lines.append(f"         {_printable(problem)}")
    lines += [line["exception"]] if "exception" in line else []
    return "\n".join([*lines, ""]).encode("utf-8", "backslashreplace")


_DIM, _COLOURS, _LEVELS = 2, (2, 32, 36, 33, 31), {"warning": 33, "error": 31, "critical": 31}  # ECMA-48, 8.3.117
SHORT = ("short", "colour")
SHAPES: dict[str, Callable[[Line], bytes]] = {
    "json": _json_line,
    "text": _text_line,
    "short": _short_line,
    "colour": partial(_short_line, colour=lambda text, code: f"\033[{code}m{text}\033[0m"),
}


def request_id() -> str:
    """The id of the current request."""
    return str(current_request.environ[_REQUEST_ID])


def configure_logging(log_format: str, level: str) -> None:
    """Send the program's log to standard error, a line a record, in a form of `SHAPES`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(_shape_of(log_format), is_whole=log_format not in SHORT or level == "debug"))
    logger = logging.getLogger("restkeeper")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


class _Lines(logging.Formatter):
    """Formats log records like the lines of requests; a short traceback has the lines of the service alone."""

    def __init__(self, shape: Callable[[Line], bytes], *, is_whole: bool) -> None:
        super().__init__()
        self._shape, self._is_whole = shape, is_whole

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": rfc3339(record.created, "milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if request_id := record.__dict__.get("request_id"):
            line["request_id"] = request_id
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            of_service = import_module("restkeeper.mistakes").own_traceback
            line["exception"] = self.formatException(record.exc_info) if self._is_whole else of_service(error)
        return self._shape(line).decode().rstrip("\n")
