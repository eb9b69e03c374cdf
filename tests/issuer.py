"""An issuer of access tokens for tests: its keys, its key set, its tokens, and a server for the key set."""

import json
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt import get_algorithm_by_name

from restkeeper.features.jwt.tokens import Tokens
from restkeeper.web.auth import InvalidCredential
from tests.clock import SetClock

ISSUER = "https://login.example"
AUDIENCE = "restkeeper"
START = 1_800_000_000.0  # seconds since the epoch, at which a SetClock starts
GOOD = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": START + 600, "scope": "products:read"}


def private_key(algorithm: str, name: str = "first") -> Any:
    """A private key for an algorithm; the same for the same name, and for all algorithms of RSA."""
    return _generated("RSA" if algorithm[:2] in ("RS", "PS") and algorithm != "RS1024" else algorithm, name)


@cache
def _generated(algorithm: str, name: str) -> Any:
    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "ES384":
            return ec.generate_private_key(ec.SECP384R1())
        case "ES512":
            return ec.generate_private_key(ec.SECP521R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case "Ed448":
            return ed448.Ed448PrivateKey.generate()
        case "RS1024":
            return rsa.generate_private_key(65537, 1024)  # noqa: S505 - it must be refused
    return rsa.generate_private_key(65537, 2048)


def jwk(algorithm: str, name: str = "first", **members: Any) -> dict[str, Any]:
    """The public key of that name as a JWK, with the name as its kid. Members that are None are omitted."""
    key = private_key(algorithm, name).public_key()
    family = {"Ed448": "EdDSA", "RS1024": "RS256"}.get(algorithm, algorithm)
    public: dict[str, Any] = get_algorithm_by_name(family).to_jwk(key, as_dict=True)
    public |= {"kid": name, "use": "sig", **members}
    return {member: value for member, value in public.items() if value is not None}


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def token(algorithm: str = "ES256", name: str = "first", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    """A token that is valid except for the given changes. Claims and headers that are None are omitted."""
    headers = {"kid": name, "typ": "JWT"} | (headers or {})
    payload = {claim: value for claim, value in (GOOD | claims).items() if value is not None}
    present = {header: value for header, value in headers.items() if value is not None}
    return jwt.encode(payload, private_key(algorithm, name), algorithm, present)


def encoded(value: Any) -> str:
    """A part of a token: bytes, or the JSON of a value."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(text).rstrip(b"=").decode()


def signed(header: Any, payload: Any, algorithm: str = "ES256") -> str:
    """A token of any header and payload, bytes or values, with a valid signature."""
    signing = f"{encoded(header)}.{encoded(payload)}"
    made = get_algorithm_by_name(algorithm).sign(signing.encode(), private_key(algorithm))
    return f"{signing}.{encoded(made)}"


FIRST = key_set(jwk("ES256"))
SECOND = key_set(jwk("ES256", "second"))


def trusted(folder: Path) -> dict[str, Any]:
    """Fields of a Config that trusts the issuer, whose key set is in a file of this folder."""
    (folder / "keys.json").write_bytes(FIRST)
    return {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": str(folder / "keys.json")}


BOTH = key_set(jwk("ES256"), jwk("ES256", "second"))
OLD, NEW = token(), token("ES256", "second")


class Issuer:
    """A replacement for the network, with a settable response; it counts the requests."""

    def __init__(self, body: bytes) -> None:
        self.body: bytes | Exception = body
        self.requests = 0

    def __call__(self, url: str) -> bytes:
        self.requests += 1
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


def from_url(issuer: Issuer, clock: SetClock, url: str = "https://login.example/keys") -> Tokens:
    """A verifier that gets its keys from an issuer."""
    return Tokens(ISSUER, AUDIENCE, url, now=clock.time, fetch=issuer)


def is_valid(tokens: Tokens, text: str) -> bool:
    """Whether a token is accepted."""
    try:
        return tokens.verify(text).subject == "ada"
    except InvalidCredential:
        return False


def answer(body: bytes, status: int = 200, *headers: str) -> bytes:
    """A response over HTTP, which the end of its connection ends."""
    return "\r\n".join([f"HTTP/1.1 {status} x", *headers, "", ""]).encode() + body
