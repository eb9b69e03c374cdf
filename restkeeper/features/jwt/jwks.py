"""Key sets: the public keys of an issuer, read from a file or a URL and kept fresh (RFC 7517).

A set says which tokens hold, so what it says is taken at once: a key that is gone verifies nothing more, and what was
verified by an older set is forgotten with it. What cannot be read or understood changes nothing.
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

FETCH_SECONDS = 5.0  # for each wait of a fetch, and for all of the body
KEPT_SECONDS = 300.0  # of a set from a URL, whatever its Cache-Control: the removal of a key must not wait longer
PAUSE_SECONDS = 10.0  # between fetches that an unknown key or a fault asks for: strangers must not make us a nuisance
FILE_SECONDS = 1.0  # between readings of a file
MOST_BYTES = 1024 * 1024  # of a set
VERIFIED_BYTES = 4 * 1024 * 1024  # of tokens that a set has verified

RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
# What a key may verify, by its type and curve (RFC 7518, section 3.1; RFC 8037): never none, never HMAC.
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
    """A public key, its name if it has one, and the algorithms that it is for."""

    kid: str | None
    algorithms: tuple[str, ...]
    public: Any


class KeySet:
    """The usable keys of a JWK Set, and what they have `verified`, by a digest of the token.

    Raises ValueError when `text` is no JWK Set. A key that is not of a known kind, or not for verifying, is passed
    over (RFC 7517, section 5); that may leave none.
    """

    def __init__(self, text: bytes) -> None:
        document = orjson.loads(text)
        if not isinstance(document, dict) or not isinstance(members := document.get("keys"), list):
            raise ValueError('it is no JWK Set: {"keys": […]}')
        self.text = text
        self.keys = [key for key in map(_usable, members) if key]
        self.verified: Cache[bytes, Any] = Cache(VERIFIED_BYTES)

    def find(self, algorithm: object, kid: str | None) -> Key | None:
        """The one key that fits: of that name or, where a token names none, of any. None where that is not one key."""
        fitting = [key for key in self.keys if algorithm in key.algorithms and kid in (None, key.kid)]
        same = all(key.public == fitting[0].public for key in fitting)  # some issuers list a key more than once
        return fitting[0] if fitting and same else None


def _usable(jwk: Any) -> Key | None:
    try:
        kid, use, operations = jwk.get("kid"), jwk.get("use", "sig"), jwk.get("key_ops", ["verify"])
        if "d" in jwk:
            _log.warning("a key set holds a private key, which is not used: whoever reads the set can make tokens")
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
    """The key set at `where`, a path or a URL, as it is now.

    A file is read once a second, which costs less than to be wrong about its times. A URL is fetched every five
    minutes, and when a token names a key that is not known. While neither can be read the last set stays in use.
    Raises Unavailable for a URL that is neither https nor of this machine, and for a file that has no usable key.
    """

    _keys: KeySet | None = None

    def __init__(self, where: str, *, now: Callable[[], float], fetch: Callable[[str], bytes]) -> None:
        remote = "://" in where
        if remote and not _is_safe(where):
            told = "must be a file, an https:// URL without a password, or an http:// URL of this machine"
            raise Unavailable(f"JWT_JWKS={where.rpartition('@')[2]!r}: {told}")
        self._where, self._now = where, now
        self._read = fetch if remote else _read_file
        self._period, self._pause = (KEPT_SECONDS, PAUSE_SECONDS) if remote else (FILE_SECONDS, FILE_SECONDS)
        self._fault = ""
        self._read_at = self._sought_at = -inf
        self._good_for = 0.0
        self._reading = threading.Lock()
        self._refresh()
        if not remote and not (self._keys and self._keys.keys):
            raise Unavailable(f"JWT_JWKS={where!r}: {self._fault or 'it has no key that can verify a token'}")

    def current(self) -> KeySet:
        """The set, read again when it is time. Raises Unavailable when there never was one."""
        if self._keys is None:
            return self.newer(None)
        if self._is_due() and self._reading.acquire(blocking=False):  # the others go on with what there is
            try:
                if self._is_due():
                    self._refresh()
            finally:
                self._reading.release()
        return self._keys

    def newer(self, than: KeySet | None) -> KeySet:
        """The set, read again if it is still the one given and that was not asked for lately. Raises as `current`."""
        if self._reading.acquire(timeout=FETCH_SECONDS):  # who comes while another reads, waits for what that brings
            try:
                if self._keys is than and self._is_past(self._sought_at, self._pause):
                    self._sought_at = self._now()
                    self._refresh()
            finally:
                self._reading.release()
        if self._keys is None:
            raise Unavailable("tokens cannot be verified now", headers={"Retry-After": str(int(self._pause))})
        return self._keys

    def _is_due(self) -> bool:
        return self._is_past(self._read_at, self._good_for)

    def _is_past(self, then: float, seconds: float) -> bool:
        return not 0 <= self._now() - then < seconds  # a clock that was put back must not stop us

    def _refresh(self) -> None:
        self._read_at = self._now()
        try:
            keys, text = self._keys, self._read(self._where)
            if keys is None or text != keys.text:
                keys = KeySet(text)
            if keys is not self._keys or self._fault:
                level = logging.INFO if keys.keys else logging.WARNING
                _log.log(level, "key set %s: %d usable keys", self._where, len(keys.keys))
            self._keys, self._fault, self._good_for = keys, "", self._period
        except (OSError, ValueError) as error:
            fault, self._good_for = str(error), self._pause
            if fault != self._fault:  # each fault once, not at each try
                effect = "what was read before stays in use" if self._keys else "no token can be verified"
                _log.warning("key set %s: %s; %s", self._where, fault, effect)
            self._fault = fault


def _is_safe(url: str) -> bool:
    """Whether nobody on the way can give us other keys."""
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
    """The operator says where the keys are; no answer leads elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """What is at an http or https URL, of at most 1 MiB. Waits 5 s for each step, and as long for all of the body.

    Raises OSError when it cannot be had and ValueError when it is too long. No redirect is followed. A proxy that the
    environment names is used, but for http, which is this machine's own.
    """
    handlers = [ProxyHandler({})] if url.startswith("http:") else []
    request = Request(url, headers={"Accept": "application/jwk-set+json, application/json"})  # noqa: S310 - checked
    try:
        with build_opener(_NoRedirects, *handlers).open(request, timeout=FETCH_SECONDS) as response:
            text, until = b"", time.monotonic() + FETCH_SECONDS
            while chunk := response.read1(65536):
                text = _bounded(text + chunk)
                if time.monotonic() > until:
                    raise TimeoutError("it comes too slowly")
            return text
    except HTTPError as error:
        error.close()
        raise
    except HTTPException as error:
        raise OSError(f"no HTTP answer: {error!r}") from error
