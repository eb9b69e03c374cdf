"""The configuration: one frozen object, built once and passed in. Nothing reads the environment later.

`Config()` has the defaults for tests (memory, quiet), `Config.from_env()` those for serving. Each setting is the
environment variable of the same name in capitals; a secret one can also come from the file that `NAME_FILE` names.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from restkeeper.net import is_loopback
from restkeeper.parsing import hosts, origins, whole

_QUOTA = re.compile(r"([1-9]\d{0,8}) ?(?:per|/) ?(?:([1-9]\d{0,3}) ?)?(second|minute|hour|day)s?")

_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")

# Of a caller. A batch of 1 MiB adds up to 3.3 MiB to the store of SQLite, with its events and the response for its key.
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 24 * 3600}
DEFAULT_QUOTA = "600 per minute"
SHORTEST_KEY = 24  # characters of ADMIN_KEY and METRICS_TOKEN: too many to guess

HARNESS_IS_LOCAL = "the test harness listens on 127.0.0.1 or ::1 only; restkeeper harness has --allow-remote"
OPEN_IS_LOCAL = (
    "AUTH=open lets every caller do everything, so it can listen on 127.0.0.1 or ::1 only; set AUTH=required and "
    "create keys, or AUTH=open-to-all if that is what you want"
)


class ConfigError(ValueError):
    """An invalid setting. The message is one line with the key, the value and the allowed values."""


def _whole(low: int, high: int) -> Callable[[Any], int]:
    read = whole(low, high)
    return lambda value: read(str(value).strip())


def _one_of(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(f"must be {' or '.join(names)}")
        return str(value)

    return parse


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("1", "true", "yes", "on"):
        return True
    if str(value).lower() in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("must be 1 or 0")


def _harness(value: Any) -> str:
    return value if value in ("spaces", "remote") else "1" if _flag(value) else ""


def _ports(value: Any) -> str:
    if value and not ((found := _PORTS.fullmatch(value)) and 0 < int(found[1]) <= int(found[2]) < 2**16):
        raise ValueError("must be the first and the last port, such as 9000-9199")
    return str(value)


def _key(value: Any) -> str:
    if 0 < len(str(value)) < SHORTEST_KEY or not str(value).isascii() or str(value) != str(value).strip():
        raise ValueError(f"must be at least {SHORTEST_KEY} ASCII characters, random ones: openssl rand -hex 32")
    return str(value)


def _claim(value: Any) -> str:
    if not str(value).strip():
        raise ValueError("must be the name of a claim, such as sub or teams")
    return str(value)


def _quota(value: Any) -> str:
    if value in ("", "off") or _QUOTA.fullmatch(str(value)):
        return str(value)
    raise ValueError(
        "must be off, or how many per second, minute, hour or day, such as 600 per minute or 50 per 10 seconds"
    )


def quota_of(text: str) -> tuple[int, int]:
    """The amount and the seconds of a quota such as "600 per minute". Raises ValueError."""
    if not (found := _QUOTA.fullmatch(text)):
        raise ValueError(text)
    return int(found[1]), int(found[2] or 1) * _SECONDS[found[3]]


def _redis(value: Any) -> str:
    try:
        parts = urlsplit(str(value))
        whole = parts.scheme == "redis+unix" or re.fullmatch(r"(/\d{0,4})?", parts.path)
        known = parts.port != 0 and parts.scheme in ("redis", "rediss", "redis+unix") and bool(whole)
        known = known and not parts.query and not parts.fragment
    except ValueError:
        known = False
    if value == "" or known:
        return str(value)
    accepted = "redis://[:PASSWORD@]HOST[:PORT][/NUMBER], the same with rediss://, or redis+unix://PATH"
    raise ValueError(f"must be {accepted}; special characters in the password must be percent-encoded")


def _setting(default: Any, parse: Callable[[Any], Any], about: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"parse": parse, "about": about, "secret": secret}, repr=not secret)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a service, checked: each has the name of its environment variable, in small letters.

    Those from `max_nodes` on are bounds without a variable, for tests. Raises ConfigError.
    """

    database_url: str = _setting(
        "memory://",
        str,
        "where items are stored: `sqlite:///FILE` (without parameters such as `?mode=ro`), "
        "[`postgresql://…`](postgresql.md) or `memory://` (one process, gone at the end)",
        secret=True,  # it may contain a password
    )
    database_connections: int = _setting(10, _whole(2, 1000), "connections of each process to PostgreSQL, at most")
    sqlite_synchronous: str = _setting(
        "full",
        _one_of("full", "normal"),
        "`full`: an acknowledged write survives power loss; `normal`: a process crash only",
    )
    host: str = _setting(
        "127.0.0.1", str, "address to listen on. Default: `0.0.0.0` when `PORT` is set and `AUTH` is not `open`"
    )
    port: int = _setting(8000, _whole(0, 65535), "port to listen on; a JSON file is served at 3000")
    web_concurrency: int = _setting(2, _whole(1, 256), "worker processes")
    auth: str = _setting(
        "open",
        _one_of("open", "required", "open-to-all"),
        "`required` (default with gunicorn.conf.py): a call needs a key or token with the right scope; `open`: callers "
        "on this machine may do everything, others are refused; `open-to-all`: all callers may do everything",
    )
    admin_key: str = _setting(
        "",
        _key,
        "a first key with the scope `admin`: 24 characters or more. For platforms without a shell",
        secret=True,
    )
    page_limit: int = _setting(20, _whole(1, 10_000), "items on a page without `limit`")
    page_limit_max: int = _setting(1000, _whole(1, 10_000), "the most items on a page that a client may ask for")
    page_bytes: int = _setting(1024 * 1024, _whole(1, 2**31), "bytes of the items on a page, which has at least one")
    max_body: int = _setting(1024 * 1024, _whole(1, 2**31), "bytes of a request body")
    max_item: int = _setting(128 * 1024, _whole(256, 2**31), "bytes of an item's JSON")
    trusted_hosts: tuple[str, ...] = _setting(
        (),
        hosts,
        "host names of this service, without ports, separated by commas; `*.example.org` is every name below "
        "`example.org`. While unset, every `Host` is accepted",
    )
    trusted_proxies: int = _setting(
        0,
        _whole(0, 16),
        "how many of your proxies stand in a row. With `2`, the second entry from the right in `X-Forwarded-For` and "
        "`X-Forwarded-Proto` counts",
    )
    cors_origins: tuple[str, ...] = _setting(
        (),
        origins,
        "origins whose pages may call this service from a browser, separated by commas: "
        "`https://app.example.org,http://localhost:5173`; or `*` alone. While unset no origin; with `AUTH=open` the "
        "origins of this machine",
    )
    require_if_match: bool = _setting(False, _flag, "`1`: PUT, PATCH and DELETE without `If-Match` get 428")
    idempotency: str = _setting(
        "optional", _one_of("optional", "required"), "`required`: a POST without `Idempotency-Key` gets 400"
    )
    idempotency_ttl: int = _setting(
        24 * 3600,
        _whole(60, 366 * 24 * 3600),
        "seconds for which the response to a POST with an idempotency key is stored",
    )
    events_ttl: int = _setting(
        7 * 24 * 3600,
        _whole(60, 366 * 24 * 3600),
        "seconds for which events and their deliveries are stored; with less than four days, the last attempts of a "
        "delivery are lost",
    )
    webhook_allow_private: bool = _setting(
        False, _flag, "`1`: webhooks may use private addresses and http, for tests and internal networks"
    )
    webhook_worker: str = _setting(
        "apart",
        _one_of("apart", "inside"),
        "`apart`: `restkeeper deliver` sends the webhooks; `inside` (default of `make run`): the service sends them",
    )
    docs: bool = _setting(True, _flag, "`0`: no pages at `/docs` and `/browse` (the OpenAPI document stays)")
    rate_limit: str = _setting(
        "",
        _quota,
        "requests that a caller may make, reading and writing each: `600 per minute`, `50 per 10 seconds`, `off`. "
        "While unset `600 per minute`, or `off` with `AUTH=open`",
    )
    rate_limit_write: str = _setting(
        "", _quota, "requests that write (not `GET`, `HEAD`, `OPTIONS`); while unset as `RATE_LIMIT`"
    )
    redis_url: str = _setting(
        "",
        _redis,
        "Redis in which instances on several machines count requests together: `redis://:PASSWORD@HOST:6379/0`",
        secret=True,
    )
    metrics_token: str = _setting(
        "", _key, "bearer token for `/metrics`, 24 characters or more; closed while unset", secret=True
    )
    jwt_issuer: str = _setting("", str, "issuer (`iss`) whose tokens are accepted; set it together with the next two")
    jwt_audience: str = _setting("", str, "audience (`aud`) of tokens: the name that the issuer has for this service")
    jwt_jwks: str = _setting(
        "",
        str,
        "the issuer's public keys (JWK Set): a file, read again when it changes, or a URL with https, read every five "
        "minutes and when a token names a new key",
    )
    jwt_owner: str = _setting(
        "sub",
        _claim,
        "the claim that has the [owners](security.md#owners) of the caller, a text or a list, "
        "such as `teams`; by default the subject",
    )
    jwt_roles: str = _setting(
        "",
        str,
        "the claim that has the [roles](security.md#roles) of the caller, a text or a list, such as `roles`; "
        "while unset tokens have no roles",
    )
    harness: str = _setting(
        "",
        _harness,
        "`1`: the [test harness](testing.md) beside the service, on this machine only and with "
        "`DATABASE_URL=memory://`; `spaces`: the harness alone; `remote`: the harness alone, also for other machines",
    )
    harness_ports: str = _setting(
        "", _ports, "the ports of the harness' spaces: `9000-9199`; while unset any free ports"
    )
    log_format: str = _setting(
        "text",
        _one_of("json", "text", "short", "colour"),
        "form of the log lines: `text` or `json`; for development `short`, with `colour`. `short` by `make run`, on a "
        "terminal `colour`",
    )
    log_level: str = _setting(
        "warning",
        _one_of("debug", "info", "warning", "error"),
        "`warning` and above leave out the line for each request",
    )

    max_nodes: int = 10_000  # values in an item's JSON: objects, arrays and what is in them
    max_depth: int = 32  # levels of nesting in a JSON body
    max_url: int = 8192  # bytes of path and query together
    min_free_space: int = 64 * 1024 * 1024  # bytes that stay free on the store's disk: with less, writes get 507
    failure_limit: str = "20 per minute"  # wrong credentials and refused hosts that an address may send; or "off"
    waits_per_caller: int = 20  # long polls that a caller may have open in each process
    webhook_timeout: int = 15  # seconds that a webhook's endpoint has for its response, in all
    # Seconds from each failure of a delivery to its next attempt; after the last one the webhook is disabled.
    webhook_retries: tuple[int, ...] = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
    deprecation_window: int = 180  # days from a deprecation to its sunset, at least

    def __post_init__(self) -> None:
        for setting in settings():
            object.__setattr__(self, setting.name, _checked(setting, setting.name, getattr(self, setting.name)))
        if self.harness not in ("", "remote") and not is_loopback(self.host):
            raise ConfigError(f"HARNESS={self.harness!r}: HOST is {self.host!r}, and {HARNESS_IS_LOCAL}")
        if self.auth == "open" and not is_loopback(self.host):
            raise ConfigError(f"HOST={self.host!r}: {OPEN_IS_LOCAL}")
        if self.harness and self.database_url != "memory://":
            raise ConfigError(
                f"HARNESS={self.harness!r}: needs DATABASE_URL=memory://: a test may change and delete everything"
            )
        if self.page_limit > self.page_limit_max:
            raise ConfigError(
                f"PAGE_LIMIT={self.page_limit!r}: must be at most PAGE_LIMIT_MAX, which is {self.page_limit_max}"
            )
        tokens = {"JWT_ISSUER": self.jwt_issuer, "JWT_AUDIENCE": self.jwt_audience, "JWT_JWKS": self.jwt_jwks}
        missing = [key for key, value in tokens.items() if not value]
        if missing and len(missing) < len(tokens):
            raise ConfigError(f"{missing[0]}='': must be set too, or none of {', '.join(tokens)}")
        for name in ("jwt_owner", "jwt_roles") if missing else ():
            if (value := getattr(self, name)) != getattr(Config, name):
                raise ConfigError(f"{name.upper()}={value!r}: is of tokens: set {', '.join(tokens)}, too")

    @property
    def item_limits(self) -> tuple[int, int]:
        """The bytes and values that an item may have. A client can send back every item that it reads."""
        return min(self.max_item, self.max_body), self.max_nodes

    @cached_property
    def body_limits(self) -> dict[str, int]:
        """The limits of a request's JSON, as `bodies.read_object` takes them."""
        return {"max_body": self.max_body, "max_depth": self.max_depth, "max_values": self.max_nodes}

    @property
    def quotas(self) -> dict[str, str]:
        """The quotas of requests by class, "read" and "write"; a class without a limit is omitted."""
        default = "off" if self.auth == "open" else DEFAULT_QUOTA  # then only this machine can send requests
        reading = self.rate_limit or default
        quotas = {"read": reading, "write": self.rate_limit_write or reading}
        return {name: quota for name, quota in quotas.items() if quota != "off"}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Config":
        """The configuration of the environment, with the defaults for serving. Raises ConfigError."""
        values: dict[str, Any] = {"database_url": "sqlite:///restkeeper.db", "log_level": "info"}
        if "PORT" in environ and environ.get("AUTH", "open") != "open":
            values["host"] = "0.0.0.0"  # noqa: S104 - a platform that sets PORT sends requests from outside
        for setting in settings():
            key = setting.name.upper()
            raw = _from_file(environ, key) if setting.metadata["secret"] else environ.get(key)
            if raw is not None:
                values[setting.name] = _checked(setting, key, raw)
        return cls(**values)


def settings() -> list[Field[Any]]:
    """The fields of `Config` that an environment variable sets."""
    return [each for each in fields(Config) if each.metadata]


def require_package(setting: str, module: str, extra: str) -> None:
    """Raise ConfigError if a setting needs a package of an extra, and this package is not installed."""
    if find_spec(module) is None:
        raise ConfigError(f"{setting}: needs the package of this extra: pip install 'restkeeper[{extra}]'")


def _checked(setting: Any, key: str, value: Any) -> Any:
    try:
        return setting.metadata["parse"](value)
    except ValueError as error:
        shown = "(hidden)" if setting.metadata["secret"] else repr(value)
        raise ConfigError(f"{key}={shown}: {error}") from None


def _from_file(environ: Mapping[str, str], key: str) -> str | None:
    path, given = environ.get(f"{key}_FILE"), environ.get(key)
    if path is None:
        return given
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}_FILE={path!r}: cannot be read ({error})") from None
    if given not in (None, "", text):
        raise ConfigError(f"{key}=(hidden): {key}_FILE={path!r} has another value; set only one of the two")
    return text
