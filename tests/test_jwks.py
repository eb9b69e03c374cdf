"""The keys of a key set that can verify tokens, and the refresh of a key set in a file."""

import logging
from pathlib import Path
from typing import Any

import pytest

from restkeeper.errors import Unavailable
from restkeeper.features.jwt import Tokens
from restkeeper.features.jwt.jwks import MOST_BYTES, usable_keys
from tests.clock import SetClock
from tests.issuer import (
    AUDIENCE,
    BOTH,
    FIRST,
    ISSUER,
    NEW,
    OLD,
    SECOND,
    Issuer,
    from_url,
    is_valid,
    jwk,
    key_set,
    token,
)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(FIRST)
    return path


def usable(*keys: Any) -> list[tuple[str | None, tuple[str, ...]]]:
    """Names and algorithms of the usable keys of a set."""
    found: dict[str | None, tuple[str, ...]] = {}
    for key in usable_keys(key_set(*keys)):
        found[key.key_id] = (*found.get(key.key_id, ()), key.algorithm_name)
    return list(found.items())


def test_a_key_has_the_algorithms_of_its_type() -> None:
    """Those of its type and curve; if it has `alg`, only that one."""
    rsa = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
    assert usable(jwk("RS256"), jwk("RS256", "second", alg="PS384")) == [("first", rsa), ("second", ("PS384",))]
    assert usable(jwk("ES384"), jwk("EdDSA", kid=None)) == [("first", ("ES384",)), (None, ("EdDSA",))]


UNUSABLE: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("ES256", {"use": "enc"}), ("ES256", {"kid": 5}), ("ES256", {"kty": "RSA"})),
    *(("ES256", {"key_ops": value}) for value in (["sign"], "verify", 5)),
    *(("ES256", {"alg": value}) for value in ("ES384", "RS256", ["ES256"])),
    *(("ES256", {"crv": value}) for value in ("P-384", ["P-256"])),
    *(("ES256", {"x": value}) for value in (None, 5)),
    *(("ES256", {"y": value}) for value in (jwk("ES256")["x"], "é")),
    *(
        ("RS256", {"alg": "HS256"}),
        ("RS256", {"n": ""}),
        ("RS256", {"e": "AA"}),
        ("RS1024", {}),
        ("EdDSA", {"x": "AA"}),
    ),
)


def test_an_unusable_key_is_ignored() -> None:
    """Keys that are for encryption, contradictory, weak, symmetric, malformed or unknown verify nothing."""
    others = ({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}, {}, [], "key", None)
    for key in (*(jwk(algorithm, **members) for algorithm, members in UNUSABLE), *others):
        assert usable(key, jwk("ES384")) == [("first", ("ES384",))], key


def test_a_private_key_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged as an error, without the key."""
    with caplog.at_level(logging.WARNING, "restkeeper"):
        assert usable(jwk("ES256", d="c2VjcmV0"), jwk("ES384")) == [("first", ("ES384",))]
    assert "private key" in caplog.text and "c2VjcmV0" not in caplog.text


def test_an_invalid_key_set_raises_an_error() -> None:
    """A document that is not a JWK Set raises ValueError."""
    for text in (b"", b"{", b"[]", b"null", b"{}", b'{"keys": {}}', b"\xff", b"[" * 5000):
        with pytest.raises(ValueError):
            usable_keys(text)


def test_a_token_without_kid_needs_one_key_that_fits(clock: SetClock) -> None:
    """It is valid if exactly one key of the set is for its algorithm."""
    text = token(headers={"kid": None})
    assert is_valid(from_url(Issuer(key_set(jwk("ES256", kid=None))), clock), text)
    assert is_valid(from_url(Issuer(key_set(jwk("ES256"), jwk("ES384"))), clock), text)
    assert not is_valid(from_url(Issuer(BOTH), clock), text)


def test_a_key_without_kid_is_not_for_a_token_that_names_one(clock: SetClock) -> None:
    """No key has the name in the token."""
    assert not is_valid(from_url(Issuer(key_set(jwk("ES256", kid=None))), clock), token())


def test_a_name_belongs_to_one_key(clock: SetClock) -> None:
    """A key that is listed twice is one; of two keys with the same name and use neither is trusted."""
    assert is_valid(from_url(Issuer(key_set(jwk("ES256"), jwk("ES256", alg="ES256"))), clock), token())
    assert is_valid(from_url(Issuer(key_set(jwk("ES256"), jwk("ES384"))), clock), token())
    assert not is_valid(from_url(Issuer(key_set(jwk("ES256"), jwk("ES256", "second", kid="first"))), clock), token())


# A file


def test_a_file_is_read_again_when_it_changes(file: Path, clock: SetClock) -> None:
    """Within a second tokens of a new key are valid and those of a removed key are not, also if verified before."""
    tokens = Tokens(ISSUER, AUDIENCE, str(file), now=clock.time)
    assert is_valid(tokens, OLD) and not is_valid(tokens, NEW)
    file.write_bytes(BOTH)
    clock.now += 1
    assert is_valid(tokens, OLD) and is_valid(tokens, NEW)
    file.write_bytes(SECOND)
    assert is_valid(tokens, OLD)
    clock.now += 1
    assert not is_valid(tokens, OLD) and is_valid(tokens, NEW)


def test_an_unreadable_file_changes_nothing(file: Path, clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
    """While it is malformed, too long or missing, the last set is used, and the log says so once."""
    tokens = Tokens(ISSUER, AUDIENCE, str(file), now=clock.time)
    for text in (b"", FIRST[:-5], FIRST + b" " * MOST_BYTES, None):
        caplog.clear()
        file.unlink()
        if text is not None:
            file.write_bytes(text)
        with caplog.at_level(logging.WARNING, "restkeeper"):
            for _ in range(3):
                clock.now += 1
                assert is_valid(tokens, OLD)
        (message,) = caplog.messages
        assert str(file) in message and "stays in use" in message
    file.write_bytes(SECOND)
    clock.now += 1
    assert is_valid(tokens, NEW)


def test_an_unchanged_set_is_logged_once(file: Path, clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
    """Reading it again is not logged, except after an error."""
    with caplog.at_level(logging.INFO, "restkeeper"):
        tokens = Tokens(ISSUER, AUDIENCE, str(file), now=clock.time)
        for text in (None, None, b"{", FIRST, None):
            if text is not None:
                file.write_bytes(text)
            clock.now += 1
            assert is_valid(tokens, OLD)
    assert [message.rpartition(": ")[2] for message in caplog.messages if "usable" in message] == ["1 usable keys"] * 2


def test_an_empty_set_withdraws_all_keys(file: Path, clock: SetClock) -> None:
    """An issuer that withdraws all its keys is believed."""
    tokens = Tokens(ISSUER, AUDIENCE, str(file), now=clock.time)
    file.write_bytes(key_set())
    clock.now += 1
    assert not is_valid(tokens, OLD)


@pytest.mark.parametrize("text", [None, b"{", key_set(), key_set(jwk("ES256", use="enc"))])
def test_a_start_without_a_usable_key_fails(tmp_path: Path, text: bytes | None) -> None:
    """A file that is missing, malformed or without a usable key stops the start with one line that names it."""
    path = tmp_path / "keys.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(Unavailable) as caught:
        Tokens(ISSUER, AUDIENCE, str(path))
    assert str(caught.value).startswith(f"JWT_JWKS='{path}': ") and "\n" not in str(caught.value)
