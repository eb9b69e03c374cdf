"""Key sets: the public keys of an issuer, read from a file or a URL and refreshed (RFC 7517).

A new set replaces the former one at once: a removed key verifies no more tokens, and the cache of verified tokens is
deleted with its set. A set that cannot be read or parsed changes nothing.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from math import ceil, inf
from typing import Any

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from jwt import PyJWK, PyJWTError

from restkeeper.errors import Unavailable
from restkeeper.net import is_loopback
from restkeeper.resources.cache import Cache
from restkeeper.web.client import ERRORS, AddressNotAllowed, Connection, reason, request_of, target_of

FETCH_SECONDS = 5.0  # for a fetch
CACHED_SECONDS = 300.0  # of a set from a URL, whatever its Cache-Control: the removal of a key must not wait longer
PAUSE_SECONDS = 10.0  # between fetches after an unknown key or an error: clients must not make us overload the issuer
FILE_SECONDS = 1.0  # between two reads of a file
MOST_BYTES = 1024 * 1024  # of a set, from a URL with the head of the response
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
_USED = frozenset(name for names in ALGORITHMS.values() for name in names)

_log = logging.getLogger("restkeeper")


class KeySource:
    """The keys at `where`, a path or a URL, and a cache of the tokens that they have `verified`, by digest.

    A file is read once a second, because its modification time is not reliable, and for each unknown key. A URL is
    fetched every five minutes, and when a token names an unknown key, but not within ten seconds. If reading fails, the
    last set stays in use.
    Raises Unavailable for a URL that is neither https nor of this machine, and for a file without a usable key.
    """

    def __init__(self, where: str, *, now: Callable[[], float], fetch: Callable[[str], bytes]) -> None:
        is_remote = "://" in where
        if is_remote and not _is_safe(where):
            allowed = "must be a file, an https:// URL without a password, or an http:// URL of this machine"
            raise Unavailable(f"JWT_JWKS={where.rpartition('@')[2]!r}: {allowed}")
        self._where, self._now = where, now
        self._read = fetch if is_remote else _read_file
        self._period, self._pause = (CACHED_SECONDS, PAUSE_SECONDS) if is_remote else (FILE_SECONDS, 0.0)
        self._text = b""
        self._keys: list[PyJWK] | None = None
        self._former: set[tuple[str, str | None]] = set()  # keys of the set before: those that are gone are not new
        self.verified: Cache[bytes, Any] = Cache(VERIFIED_BYTES)
        self._fault = ""
        self._read_at, self._fresh_for = -inf, 0.0
        self._reading = threading.Lock()
        self.refresh()
        if not is_remote and not self._keys:
            raise Unavailable(f"JWT_JWKS={where!r}: {self._fault or 'it has no key that can verify a token'}")

    def find(self, algorithm: object, kid: str | None) -> PyJWK | None:
        """The only key for this algorithm with this id (None: any id); None if there is none or more than one.

        For an unknown key the set is read again, and None is the answer only if it was read for this very call, or if
        the key is one that was removed. Otherwise it may be new, whoever asked for it before: raises Unavailable.
        """
        if not isinstance(algorithm, str) or algorithm not in _USED:
            return None
        if key := _matching(self._keys, algorithm, kid):
            return key
        if self._reading.acquire(timeout=FETCH_SECONDS):  # another thread may be reading it
            self._reading.release()
        is_new = self.refresh(after=self._pause)
        if (key := _matching(self._keys, algorithm, kid)) or is_new or (algorithm, kid) in self._former:
            return key
        left = min(self._read_at + self._pause - self._now(), self._pause)
        raise Unavailable("the key of the token is not known yet", headers={"Retry-After": str(max(1, ceil(left)))})

    def refresh(self, *, after: float | None = None) -> bool:
        """Read the set again if it is due, or was read `after` seconds ago. Meanwhile others use the present set.

        Whether this call has read it.
        """
        age = self._now() - self._read_at  # negative if the clock was set back, which must not stop it
        if 0 <= age < (self._fresh_for if after is None else after) or not self._reading.acquire(blocking=False):
            return False
        try:
            self._read_at = self._now()
            text = self._read(self._where)
            if self._keys is None or text != self._text:
                former = {(each.algorithm_name, each.key_id) for each in self._keys or ()}
                self._keys, self._text, self.verified = usable_keys(text), text, Cache(VERIFIED_BYTES)
                self._former = former
                self._fault = "another set"
            if self._fault:
                level = logging.INFO if self._keys else logging.WARNING
                _log.log(level, "key set %s: %d usable keys", self._where, len(self._keys))
            self._fault, self._fresh_for = "", self._period
            return True
        except (OSError, ValueError) as error:
            fault, self._fresh_for = str(error), self._pause
            if fault != self._fault:  # log each error once, not at each attempt
                effect = "no token can be verified" if self._keys is None else "the last set stays in use"
                _log.warning("key set %s: %s; %s", self._where, fault, effect)
            self._fault = fault
            return False
        finally:
            self._reading.release()


def usable_keys(text: bytes) -> list[PyJWK]:
    """The keys of a JWK Set that can verify tokens, one for each of their algorithms. Raises ValueError if it is none.

    Keys of an unknown type or not for verifying are ignored (RFC 7517, section 5); that may leave none.
    """
    document = orjson.loads(text)
    if not isinstance(document, dict) or not isinstance(members := document.get("keys"), list):
        raise ValueError('it is not a JWK Set: {"keys": […]}')
    usable: list[PyJWK] = []
    for jwk in members:
        with suppress(PyJWTError, UnsupportedAlgorithm, AttributeError, TypeError, ValueError):
            kid, use, operations = jwk.get("kid"), jwk.get("use", "sig"), jwk.get("key_ops", ["verify"])
            algorithms = ALGORITHMS.get((jwk.get("kty"), jwk.get("crv")), ())
            if "d" in jwk:
                _log.warning("a key set contains a private key, which is not used: every reader can make tokens")
            elif use == "sig" and "verify" in list(operations) and isinstance(kid, str | None):
                keys = [PyJWK(jwk, name) for name in algorithms if jwk.get("alg", name) == name]
                usable += [key for key in keys if not key.Algorithm.check_key_length(key.key)]
    return usable


def _matching(keys: list[PyJWK] | None, algorithm: object, kid: str | None) -> PyJWK | None:
    matching = [key for key in keys or () if key.algorithm_name == algorithm and kid in (None, key.key_id)]
    same = all(key.key == matching[0].key for key in matching)  # some issuers list a key more than once
    return matching[0] if matching and same else None


def _is_safe(url: str) -> bool:
    """Whether the network cannot replace the keys: https, or http on this machine; and without a password to log."""
    try:
        is_tls, host, _ = target_of(url).origin
    except AddressNotAllowed:
        return False
    return is_tls or (url.lower().startswith("http:") and is_loopback(host))


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES} bytes")
    return text


def fetch(url: str) -> bytes:
    """The body at an http or https URL, within 5 s in all. Raises OSError if there is none, or it is too long.

    Redirects are not followed, and no proxy of the environment is used.
    """
    until, target = time.monotonic() + FETCH_SECONDS, target_of(url)
    fields = {"Accept": "application/jwk-set+json, application/json", "Connection": "close"}
    try:
        with closing(Connection(target.origin, until, ssl.create_default_context(), MOST_BYTES)) as connection:
            response = connection.exchange(request_of("GET", target, fields), b"", until, MOST_BYTES)
    except ERRORS as error:
        raise OSError(reason(TimeoutError() if time.monotonic() >= until else error, FETCH_SECONDS)) from error
    if response.status != 200:
        raise OSError(f"the response has the status {response.status}")
    if not response.is_complete:
        raise OSError(f"the response breaks off, or is longer than {MOST_BYTES} bytes")
    return response.content
