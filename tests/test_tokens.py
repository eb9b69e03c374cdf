"""A token is valid by its signature, key, issuer, audience and times; otherwise it is refused."""

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from restkeeper.features.jwt.tokens import Claims, Tokens, is_token
from restkeeper.web.auth import InvalidCredential
from tests.clock import SetClock
from tests.issuer import AUDIENCE, GOOD, ISSUER, START, encoded, jwk, key_set, private_key, signed, token

ES = {"alg": "ES256", "kid": "first"}


@pytest.fixture
def trust(tmp_path: Path, clock: SetClock) -> Callable[..., Tokens]:
    """Creates a verifier that trusts the given keys, in a file."""

    def made(*keys: Any, **options: Any) -> Tokens:
        (tmp_path / "keys.json").write_bytes(key_set(*keys))
        return Tokens(ISSUER, AUDIENCE, str(tmp_path / "keys.json"), now=clock.time, **options)

    return made


@pytest.fixture
def tokens(trust: Callable[..., Tokens]) -> Tokens:
    return trust(jwk("ES256"))


def refused(tokens: Tokens, text: str) -> str:
    """The cause for which a token is refused."""
    with pytest.raises(InvalidCredential) as caught:
        tokens.verify(text)
    return str(caught.value)


def test_a_good_token_is_valid(trust: Callable[..., Tokens]) -> None:
    """Each allowed algorithm verifies, and the claims are those of the token. EdDSA has both curves (RFC 8037)."""
    for algorithm in "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split():
        claims = trust(jwk(algorithm)).verify(token(algorithm))
        assert claims == Claims("ada", frozenset({"products:read"}), START + 600, ("ada",)), algorithm
    text = jwt.encode(GOOD, private_key("Ed448"), "EdDSA", {"kid": "first"})
    assert trust(jwk("Ed448")).verify(text).subject == "ada"


def test_types_and_audiences_of_access_tokens_are_valid(tokens: Tokens) -> None:
    """`typ` says that it is one (RFC 9068), or a JWT, or is missing; the issuer's clock may be a little ahead."""
    for typ in ("JWT", "jwt", "at+jwt", "application/at+jwt", "AT+JWT"):
        assert tokens.verify(signed(ES | {"typ": typ}, GOOD)).subject == "ada", typ
    assert tokens.verify(signed(ES, GOOD)).subject == "ada"
    assert tokens.verify(token(aud=["other", AUDIENCE])).subject == "ada"
    assert tokens.verify(token(nbf=START + 30, iat=START + 30)).subject == "ada"


def test_owners_come_from_a_claim(trust: Callable[..., Tokens]) -> None:
    """A text or a list, as it is; by default it is the subject."""
    tokens = trust(jwk("ES256"), owner="https://login.example/teams")
    expected: list[tuple[Any, tuple[str, ...]]] = [
        ("team-a", ("team-a",)),
        (["ada", "team a", "Ü" * 200], ("ada", "team a", "Ü" * 200)),
        ([f"t{n}" for n in range(20)], tuple(f"t{n}" for n in range(20))),
        ([], ()),
        (None, ()),
    ]
    for value, owners in expected:
        assert tokens.verify(token(**{"https://login.example/teams": value})).owners == owners, value
    by_subject = trust(jwk("ES256"))
    for subject in ("ada", "team a", "auth0|5", "Ü" * 200):
        assert by_subject.verify(token(sub=subject)).owners == (subject,)
    words = "is not a printable text of 1 to 200 characters, or a list of some"
    wrong = {
        "has more than 20 owners": [[f"t{n}" for n in range(21)]],
        words: ["", "x" * 201, "a\nb", "\0", 5, True, {"a": "b"}, ["a", ""], ["a", 1], [["a"]]],
        "begins like an owner that the engine names": [
            *("key:0123456789abcdef", ["ada", "key:"], "key", "jwt:ada", "anonymous", "admin-key")
        ],
    }
    for cause, values in wrong.items():
        for value in values:
            text = token(**{"https://login.example/teams": value})
            assert refused(tokens, text) == f"https://login.example/teams {cause}", value
            if isinstance(value, str) and value.isprintable() and value:
                assert refused(by_subject, token(sub=value)) == f"sub {cause}", value
                assert tokens.verify(token(sub=value)).owners == ()


def test_scopes_come_from_scope_or_scp(tokens: Tokens) -> None:
    """`scope` is a text; if it is missing, `scp` is a text or a list."""
    expected: list[tuple[dict[str, Any], set[str]]] = [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": " a  b "}, {"a", "b"}),
        ({"scope": ""}, set()),
        ({"scope": None}, set()),
        ({"scope": None, "scp": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": "a", "scp": ["b"]}, {"a"}),
        ({"scope": "", "scp": ["b"]}, set()),
    ]
    assert [(claims, set(tokens.verify(token(**claims)).scopes)) for claims, _ in expected] == expected


def test_an_invalid_claim_is_refused(tokens: Tokens) -> None:
    """Issuer, audience, subject, times and scopes are each checked, also with a valid signature."""
    wrong: dict[str, list[tuple[str, Any]]] = {
        "InvalidIssuerError": [("iss", "https://evil.example"), ("iss", ISSUER + "/")],
        "InvalidAudienceError": [
            ("aud", each) for each in ("other", AUDIENCE + "x", ["other"], [AUDIENCE, 5], {AUDIENCE: 1})
        ],
        "MissingRequiredClaimError": [("iss", None), ("aud", None), ("aud", []), ("sub", None), ("exp", None)],
        "sub is not a printable text": [("sub", ""), ("sub", "a\nb"), ("sub", "\ud800")],
        "sub is too long": [("sub", "x" * 256)],
        "InvalidSubjectError": [("sub", 5)],
        "expired": [("exp", START), ("exp", START - 1), ("exp", -1)],
        "exp is not a time": [("exp", each) for each in (str(START + 600), True, 10**400, float("nan"), float("inf"))],
        "nbf is in the future": [("nbf", START + 31)],
        "nbf is not a time": [("nbf", "soon")],
        "iat is in the future": [("iat", START + 31)],
        "iat is not a time": [("iat", [])],
        "scope is not a list of texts": [("scope", ["a"]), ("scope", "a\ud800")],
    }
    for cause, claims in wrong.items():
        for name, value in claims:
            payload = {each: claim for each, claim in (GOOD | {name: value}).items() if claim is not None}
            assert refused(tokens, signed(ES, payload)) == cause, (name, value)
    for scp in ([1], {"a": 1}):
        payload = {each: claim for each, claim in GOOD.items() if each != "scope"} | {"scp": scp}
        assert refused(tokens, signed(ES, payload)) == "scp is not a list of texts"


def test_a_header_or_payload_that_is_no_object_is_refused(tokens: Tokens) -> None:
    """Both must be JSON objects, also with a valid signature."""
    causes = {"DecodeError", "not three parts in base64url"}
    for payload in (b"", b"[]", b"null", b"\xff", b'{"iss"', b"[" * 6000, b"9" * 6000):
        assert refused(tokens, signed(ES, payload)) in causes, payload[:10]
    for header in (b"", b"\xff\xfe", b"null", b"[]", b'"ES256"', b'{"alg":', b"[" * 9000):
        assert refused(tokens, signed(header, GOOD)) in causes, header[:10]


def test_an_invalid_header_is_refused(tokens: Tokens) -> None:
    """It names an allowed algorithm and a key of the set for that algorithm, whatever the signature is."""
    algorithms = ("none", "None", "HS256", "es256", "ES384", "ES256K", "RS256", ["ES256"], None)
    ids = ("second", "../../dev/null", "first' OR '1'='1", "first\x00", "")
    wrong: dict[str, list[dict[str, Any]]] = {
        "no key matches": [*({"alg": each} for each in algorithms), *({"kid": each} for each in ids)],
        "InvalidTokenError": [*({"kid": each} for each in (None, 1, ["first"])), {"crit": ["exp"]}, {"crit": []}],
        "the header has critical extensions": [{"crit": ["b64"], "b64": True}],
        "DecodeError": [{"b64": False}],
        "typ is of another kind of token": [{"typ": each} for each in ("logout+jwt", "dpop+jwt", 5, None)],
    }
    for cause, headers in wrong.items():
        for header in headers:
            assert refused(tokens, signed(ES | header, GOOD)) == cause, header


def test_a_changed_token_is_refused(tokens: Tokens) -> None:
    header, payload, signature = token().split(".")
    other = encoded(GOOD | {"sub": "eve"})
    assert refused(tokens, f"{header}.{other}.{signature}") == "InvalidSignatureError"
    assert refused(tokens, f"{encoded(ES | {'x': 1})}.{payload}.{signature}") == "InvalidSignatureError"
    assert refused(tokens, f"{header}.{payload}.{token('ES256', 'other').split('.')[2]}") == "InvalidSignatureError"
    assert refused(tokens, f"{header}.{payload}.") == "InvalidSignatureError"
    assert refused(tokens, f"{header}.{payload}.{encoded(bytes(64))}") == "InvalidSignatureError"
    assert refused(tokens, f"{encoded({'alg': 'none'})}.{payload}.") == "no key matches"


def test_a_token_is_recognized_by_its_form(tokens: Tokens) -> None:
    """It has three parts in base64url; anything else is refused. An API key is no token."""
    assert is_token(token()) and is_token("a.b.")
    malformed = ("", ".", "..", "...", "a", "a.b", "a.b.c.d", "a.b.c.d.e", "\x00", "é.é.é", "eyJ.\ud800.x")
    for text in (*malformed, " a.b.c", "a.b.c\n", "Ａ.b.c", "rk_0123456789abcdef"):
        assert not is_token(text), text
        assert refused(tokens, text) == "not three parts in base64url", text


def test_an_oversized_token_is_refused(tokens: Tokens) -> None:
    assert tokens.verify(token(pad="x" * 10_000)).subject == "ada"
    assert refused(tokens, token(pad="x" * 13_000)) == "too long"


def test_keys_inside_a_token_are_ignored(trust: Callable[..., Tokens]) -> None:
    """jwk, jku, x5u and x5c in a header change nothing: a signature with such a key is refused."""
    tokens = trust(jwk("ES256"))
    brought = {"jwk": jwk("ES256", "eve"), "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/", "x5c": ["x"]}
    assert refused(tokens, token("ES256", "eve", brought)) == "no key matches"
    assert refused(tokens, token("ES256", "eve", brought | {"kid": "first"})) == "InvalidSignatureError"
    assert tokens.verify(token(headers=brought)).subject == "ada"


def test_a_verified_token_expires(tokens: Tokens, clock: SetClock) -> None:
    text = token(exp=START + 0.9)
    assert tokens.verify(text) is tokens.verify(text)
    clock.now += 0.9
    assert refused(tokens, text) == "expired"


def test_the_log_has_the_cause_and_not_the_token(tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    """An operator can read why a token was refused, but not its content."""
    text = token(sub="secret-subject", aud="secret-audience", headers={"x": "y\nz"})
    with caplog.at_level(logging.DEBUG):
        refused(tokens, text)
    assert [record.getMessage() for record in caplog.records] == ["token refused: InvalidAudienceError"]


def test_any_changed_token_raises_only_invalid_token(tokens: Tokens) -> None:
    chance = random.Random(20)  # noqa: S311 - the same each time
    good = token()
    parts = [json.loads(b) for b in (b'{"alg":"ES256","kid":"first"}', json.dumps(GOOD).encode())]
    odd = [None, True, -1, 1e308, 10**30, "", "\x00", "\ud800", [], {}, [[]], {"kid": {}}, "ES256", "x" * 999]
    for _ in range(1500):
        if chance.random() < 0.5:
            text = list(good)
            for _ in range(chance.randint(1, 4)):
                place = chance.randrange(len(text))
                text[place : place + chance.randint(0, 3)] = chance.choice(
                    ["", ".", "=", "A", "_", "é", "\x00", "\U0001f600"]
                )
            made = "".join(text)
        else:
            header, payload = dict(parts[0]), dict(parts[1])
            changed = chance.choice([header, payload])
            changed[chance.choice([*changed, "typ", "crit", "nbf", "scp", "b64", "jti"])] = chance.choice(odd)
            made = signed(header, payload)
        try:
            claims = tokens.verify(made)
        except InvalidCredential:
            continue
        assert claims.subject and claims.expires > START
        assert made == good or made.split(".")[:2] != good.split(".")[:2]
