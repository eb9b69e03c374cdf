"""The verification of access tokens (RFC 7519, RFC 8725, RFC 9068).

A token is trusted only after its signature is verified with a key of the issuer's set. `alg` selects one of the key's
algorithms, `kid` one of the keys. Keys and addresses in a token (`jwk`, `jku`, `x5u`, `x5c`) are ignored.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import jwt
from jwt import exceptions

from restkeeper.features.jwt.jwks import KeySource, fetch
from restkeeper.resources.call import ANONYMOUS
from restkeeper.web.auth import LONGEST_NAMED_OWNER, MOST_OWNERS, InvalidCredential, SignedCredential

MOST_CHARACTERS = 16 * 1024  # of a token
LONGEST_SUBJECT = 255  # characters of `sub` (as OpenID Connect Core, section 2): it is stored, and names counters
_OF_ENGINE = ("key", "jwt", "admin-key", ANONYMOUS)  # what owners that the engine names begin with
LEEWAY = 30.0  # seconds that the issuer's clock may be ahead of ours, for nbf and iat; exp has none

# Values of `typ`, in lower case and without "application/" (RFC 7515, section 4.1.9). An access token should have
# "at+jwt" (RFC 9068); few issuers set it. Other values mean another kind of JWT, such as a logout or proof token, which
# is not an access token (RFC 8725, section 3.11).
TYPES = ("jwt", "at+jwt")

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_OF_CLAIMS = (  # the errors of a token whose signature is valid
    *(exceptions.InvalidAudienceError, exceptions.InvalidIssuerError, exceptions.InvalidJTIError),
    *(exceptions.InvalidSubjectError, exceptions.MissingRequiredClaimError),
)
_FAR = float(2**53)  # seconds; larger values are not times
_log = logging.getLogger("restkeeper")


class Claims(NamedTuple):
    """The claims of a verified token."""

    subject: str
    scopes: frozenset[str]
    expires: float  # seconds since the epoch
    owners: tuple[str, ...]  # that a claim names
    roles: frozenset[str] = frozenset()  # likewise


def is_token(text: str) -> bool:
    """Whether a credential has the form of a signed JWT: three parts in base64url (RFC 7515, section 3.1)."""
    return _TOKEN.fullmatch(text) is not None


@dataclass(eq=False)
class Tokens:
    """Verifies the tokens of `issuer` for `audience` by the key set at `jwks`, a path or a URL.

    The claim `owner` names the caller's owners, and `roles` its roles: without a name it has none.

    Raises Unavailable for a file that cannot be read or has no usable key; a URL that cannot be fetched yet is logged.
    """

    issuer: str
    audience: str
    jwks: str
    _: KW_ONLY
    owner: str = "sub"
    roles: str = ""
    now: Callable[[], float] = time.time
    fetch: Callable[[str], bytes] = fetch

    def __post_init__(self) -> None:
        self._source = KeySource(self.jwks, now=self.now, fetch=self.fetch)

    def verify(self, token: str) -> Claims:
        """The claims of a token.

        Raises InvalidCredential if it is not valid, SignedCredential if that is not because of its signature: the text
        is for the log, the response is the same for every cause. Raises Unavailable if it may be of a new key, and the
        key set cannot be read now.
        """
        try:
            if len(token) > MOST_CHARACTERS:
                raise InvalidCredential("too long")
            self._source.refresh()
            verified = self._source.verified  # of the present keys
            digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
            if (claims := verified.get(digest)) is None:
                claims = self._verified(token)
                verified.add(digest, claims, len(token))
            if claims.expires <= self.now():
                raise SignedCredential("expired")
            return claims
        except InvalidCredential as cause:
            _log.info("token refused: %s", cause)
            raise

    def _verified(self, token: str) -> Claims:
        """The claims of a token whose signature is verified."""
        algorithm, kid = _header(token)
        if (key := self._source.find(algorithm, kid)) is None:
            raise InvalidCredential("no key matches")
        try:
            payload = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self.issuer,
                audience=self.audience,
                options={
                    "require": ["iss", "aud", "sub", "exp"],
                    "verify_exp": False,  # the times are checked below, by our clock
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:  # its text may quote the token
            kind = SignedCredential if isinstance(error, _OF_CLAIMS) else InvalidCredential
            raise kind(type(error).__name__) from None
        for name in ("nbf", "iat"):
            if name in payload and _time(payload, name) > self.now() + LEEWAY:
                raise SignedCredential(f"{name} is in the future")
        subject = payload["sub"]  # it is stored, compared and logged as it is
        if not subject or not subject.isprintable():
            raise SignedCredential("sub is not a printable text")
        if len(subject) > LONGEST_SUBJECT:
            raise SignedCredential("sub is too long")
        roles = _words(payload, self.roles) if self.roles else frozenset()
        return Claims(subject, _scopes(payload), _time(payload, "exp"), _owners(payload, self.owner), roles)


def _header(token: str) -> tuple[Any, str | None]:
    """The algorithm and the key id in a token's header."""
    if not is_token(token):
        raise InvalidCredential("not three parts in base64url")
    try:
        header = jwt.get_unverified_header(token.partition(".")[0] + "..")  # which takes time by the length
    except jwt.PyJWTError as error:
        raise InvalidCredential(type(error).__name__) from None
    if "crit" in header:  # RFC 7515, section 4.1.11: we know no extension
        raise InvalidCredential("the header has critical extensions")
    if str(header.get("typ", "JWT")).lower().removeprefix("application/") not in TYPES:
        raise InvalidCredential("typ is of another kind of token")
    return header.get("alg"), header.get("kid")


def _time(payload: dict[str, Any], name: str) -> float:
    value = payload[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_FAR < value < _FAR:
        raise SignedCredential(f"{name} is not a time")
    return float(value)


def _scopes(payload: dict[str, Any]) -> frozenset[str]:
    """`scope`, blank-separated (RFC 8693, section 4.2; RFC 9068), else `scp`, likewise or as a list."""
    return _words(payload, "scp" if payload.get("scope") is None else "scope")


def _words(payload: dict[str, Any], name: str) -> frozenset[str]:
    """The words in a claim, which is a blank-separated text, or a list unless it is `scope`; none without the claim."""
    value = payload.get(name)
    words = value.split(" ") if isinstance(value, str) else None if name == "scope" else value
    if value is None:
        return frozenset()
    if not isinstance(words, list) or not all(isinstance(word, str) and word.isprintable() for word in words):
        raise SignedCredential(f"{name} is not a list of texts")
    return frozenset(words) - {""}


def _owners(payload: dict[str, Any], name: str) -> tuple[str, ...]:
    """The owners in a claim, which is a text, or a list of up to MOST_OWNERS; none if there is no such claim."""
    value = payload.get(name)
    found = [] if value is None else value if isinstance(value, list) else [value]
    if len(found) > MOST_OWNERS:
        raise SignedCredential(f"{name} has more than {MOST_OWNERS} owners")
    for owner in found:
        if not isinstance(owner, str) or not 0 < len(owner) <= LONGEST_NAMED_OWNER or not owner.isprintable():
            raise SignedCredential(
                f"{name} is not a printable text of 1 to {LONGEST_NAMED_OWNER} characters, or a list of some"
            )
        if owner.partition(":")[0] in _OF_ENGINE:  # it would reach what a key has, or a subject without the claim
            raise SignedCredential(f"{name} begins like an owner that the engine names")
    return tuple(found)
