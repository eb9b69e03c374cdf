"""Key sets: the public keys of an issuer, read from a file or a URL and refreshed (RFC 7517).

A new set replaces the former one at once: a removed key verifies no more tokens, and the cache of verified tokens is
deleted with its set. A set that cannot be read or parsed changes nothing.
"""

import logging
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from math import inf
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from jwt import PyJWK, PyJWTError

from restkeeper.errors import Unavailable
from restkeeper.net import is_loopback
from restkeeper.web.cache import Cache

FETCH_SECONDS = 5.0  # for each wait of a fetch, and for the whole body
CACHED_SECONDS = 300.0  # of a set from a URL, whatever its Cache-Control: the removal of a key must not wait longer
PAUSE_SECONDS = 10.0  # between fetches after an unknown key or an error: clients must not make us overload the issuer
FILE_SECONDS = 1.0  # between two reads of a file
MOST_BYTES = 1024 * 1024  # of a set
VERIFIED_BYTES = 4 * 1024 * 1024  # of the cache of verified tokens of a set

RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
# The algorithms of a key by its type and curve (RFC 7518, section 3.1; RFC 8037): never none, never HMAC.
ALGORITHMS = {
    ("RSA", None): RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}

_log = logging.getLogger("restkeeper")


class Key(NamedTuple):
    """A public key, its id (`kid`) if it has one, and its algorithms."""

    kid: str | None
    algorithms: tuple[str, ...]
    public: Any


class KeySet:
    """The usable keys of a JWK Set, and a cache of the tokens that they have `verified`, by digest.

    Raises ValueError if `text` is not a JWK Set. Keys of an unknown type or not for verifying are ignored (RFC 7517,
    section 5); that may leave none.
    """

    def __init__(self, text: bytes) -> None:
        document = orjson.loads(text)
        if not isinstance(document, dict) or not isinstance(members := document.get("keys"), list):
            raise ValueError('it is not a JWK Set: {"keys": […]}')
        self.text = text
        self.keys = [key for key in map(_usable, members) if key]
        self.verified: Cache[bytes, Any] = Cache(VERIFIED_BYTES)

    def find(self, algorithm: object, kid: str | None) -> Key | None:
        """The only key for this algorithm with this id (None: any id); None if there is none or more than one."""
        matching = [key for key in self.keys if algorithm in key.algorithms and kid in (None, key.kid)]
        same = all(key.public == matching[0].public for key in matching)  # some issuers list a key more than once
        return matching[0] if matching and same else None


def _usable(jwk: Any) -> Key | None:
    try:
        kid, use, operations = jwk.get("kid"), jwk.get("use", "sig"), jwk.get("key_ops", ["verify"])
        if "d" in jwk:
            _log.warning("a key set contains a private key, which is not used: every reader of the set can make tokens")
            return None
        algorithms = ALGORITHMS.get((jwk.get("kty"), jwk.get("crv")), ())
        algorithms = tuple(name for name in algorithms if jwk.get("alg", name) == name)
        if use != "sig" or "verify" not in list(operations) or not algorithms or not isinstance(kid, str | None):
            return None
        key = PyJWK(jwk, algorithms[0])
        return None if key.Algorithm.check_key_length(key.key) else Key(kid, algorithms, key.key)
    except (PyJWTError, UnsupportedAlgorithm, AttributeError, TypeError, ValueError):
        return None


class KeySource:
    """The current key set at `where`, a path or a URL.

    A file is read once a second, because its modification time is not reliable. A URL is fetched every five minutes,
    and when a token names an unknown key. If reading fails, the last set stays in use. Raises Unavailable for a URL
    that is neither https nor of this machine, and for a file without a usable key.
    """

    _keys: KeySet | None = None

    def __init__(self, where: str, *, now: Callable[[], float], fetch: Callable[[str], bytes]) -> None:
        remote = "://" in where
        if remote and not _is_safe(where):
            allowed = "must be a file, an https:// URL without a password, or an http:// URL of this machine"
            raise Unavailable(f"JWT_JWKS={where.rpartition('@')[2]!r}: {allowed}")
        self._where, self._now = where, now
        self._read = fetch if remote else _read_file
        self._period, self._pause = (CACHED_SECONDS, PAUSE_SECONDS) if remote else (FILE_SECONDS, FILE_SECONDS)
        self._fault = ""
        self._read_at = self._requested_at = -inf
        self._fresh_for = 0.0
        self._reading = threading.Lock()
        self._refresh()
        if not remote and not (self._keys and self._keys.keys):
            raise Unavailable(f"JWT_JWKS={where!r}: {self._fault or 'it has no key that can verify a token'}")

    def current(self) -> KeySet:
        """The set, read again when it is due. Raises Unavailable if none could be read yet."""
        if self._keys is None:
            return self.newer(None)
        if self._is_due() and self._reading.acquire(blocking=False):  # other threads use the present set
            try:
                if self._is_due():
                    self._refresh()
            finally:
                self._reading.release()
        return self._keys

    def newer(self, than: KeySet | None) -> KeySet:
        """The set, read again if it is still `than` and the pause is over. Raises Unavailable as `current`."""
        if self._reading.acquire(timeout=FETCH_SECONDS):  # other threads wait for the one that reads
            try:
                if self._keys is than and self._is_past(self._requested_at, self._pause):
                    self._requested_at = self._now()
                    self._refresh()
            finally:
                self._reading.release()
        if self._keys is None:
            raise Unavailable("tokens cannot be verified now", headers={"Retry-After": str(int(self._pause))})
        return self._keys

    def _is_due(self) -> bool:
        return self._is_past(self._read_at, self._fresh_for)

    def _is_past(self, then: float, seconds: float) -> bool:
        return not 0 <= self._now() - then < seconds  # a clock that was set back must not stop it

    def _refresh(self) -> None:
        self._read_at = self._now()
        try:
            keys, text = self._keys, self._read(self._where)
            if keys is None or text != keys.text:
                keys = KeySet(text)
            if keys is not self._keys or self._fault:
                level = logging.INFO if keys.keys else logging.WARNING
                _log.log(level, "key set %s: %d usable keys", self._where, len(keys.keys))
            self._keys, self._fault, self._fresh_for = keys, "", self._period
        except (OSError, ValueError) as error:
            fault, self._fresh_for = str(error), self._pause
            if fault != self._fault:  # log each error once, not at each attempt
                effect = "the last set stays in use" if self._keys else "no token can be verified"
                _log.warning("key set %s: %s; %s", self._where, fault, effect)
            self._fault = fault


def _is_safe(url: str) -> bool:
    """Whether the network cannot replace the keys: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
        if parts.username is not None or parts.password is not None:  # a secret, and the log names the address
            return False
        if scheme == "http":
            return is_loopback(host)
        return scheme == "https" and bool(host)
    except ValueError:
        return False


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return _bounded(file.read(MOST_BYTES + 1))


def _bounded(text: bytes) -> bytes:
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES} bytes")
    return text


class _NoRedirects(HTTPRedirectHandler):
    """The keys are at the configured URL; no response redirects."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """The body at an http or https URL, of at most 1 MiB. It waits 5 s for each step, and 5 s for the whole body.

    Raises OSError if the request fails, ValueError if the body is too long. Redirects are not followed. The proxy of
    the environment is used, except for http, which is this machine.
    """
    handlers = [ProxyHandler({})] if url.startswith("http:") else []
    request = Request(url, headers={"Accept": "application/jwk-set+json, application/json"})  # noqa: S310 - checked
    try:
        with build_opener(_NoRedirects, *handlers).open(request, timeout=FETCH_SECONDS) as response:
            text, until = b"", time.monotonic() + FETCH_SECONDS
            while chunk := response.read1(65536):
                text = _bounded(text + chunk)
                if time.monotonic() > until:
                    raise TimeoutError("the response is too slow")
            return text
    except HTTPError as error:
        error.close()
        raise
    except HTTPException as error:
        raise OSError(f"no HTTP response: {error!r}") from error
