"""The keys of a key set that can verify tokens, and its refresh from a file or a URL, no more often than needed."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest

from restkeeper.errors import Unavailable
from restkeeper.features.jwt.jwks import MOST_BYTES, fetch, usable_keys
from restkeeper.features.jwt.tokens import Tokens
from restkeeper.web.auth import InvalidCredential
from tests.clock import SetClock
from tests.endpoint import EndpointConnection, replying, serving
from tests.issuer import (
    AUDIENCE,
    BOTH,
    FIRST,
    GOOD,
    ISSUER,
    NEW,
    OLD,
    SECOND,
    Issuer,
    answer,
    from_url,
    is_valid,
    jwk,
    key_set,
    token,
)
from tests.waiting import SECONDS


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
    with caplog.at_level(logging.WARNING, "restkeeper"):
        assert usable(jwk("ES256", d="c2VjcmV0"), jwk("ES384")) == [("first", ("ES384",))]
    assert "private key" in caplog.text and "c2VjcmV0" not in caplog.text


def test_an_invalid_key_set_raises_an_error() -> None:
    for text in (b"", b"{", b"[]", b"null", b"{}", b'{"keys": {}}', b"\xff", b"[" * 5000):
        with pytest.raises(ValueError):
            usable_keys(text)


FOUND = [
    (True, {"kid": None}, [jwk("ES256", kid=None)]),
    (True, {"kid": None}, [jwk("ES256"), jwk("ES384")]),
    (False, {"kid": None}, [jwk("ES256"), jwk("ES256", "second")]),
    (False, {}, [jwk("ES256", kid=None)]),
    (True, {}, [jwk("ES256"), jwk("ES256", alg="ES256")]),
    (True, {}, [jwk("ES256"), jwk("ES384")]),
    (False, {}, [jwk("ES256"), jwk("ES256", "second", kid="first")]),
]


def test_one_key_fits_a_token(tmp_path: Path) -> None:
    """By its name, or if the token has none by its algorithm; of two with the same name and use neither is trusted."""
    file, found = tmp_path / "keys.json", []
    for _, headers, keys in FOUND:
        file.write_bytes(key_set(*keys))
        found.append(is_valid(Tokens(ISSUER, AUDIENCE, str(file), now=SetClock().time), token(headers=headers)))
    assert found == [expected for expected, *_ in FOUND]


def wait_for(tokens: Tokens, text: str) -> int:
    """After how many seconds to send a token again that may be of a new key; 0 for one that is refused."""
    try:
        tokens.verify(text)
    except InvalidCredential:
        return 0
    except Unavailable as error:
        return int(error.headers["Retry-After"])
    raise AssertionError("it is valid")


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
    file.write_bytes(key_set())
    clock.now += 1
    assert not is_valid(tokens, NEW)


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
    with caplog.at_level(logging.INFO, "restkeeper"):
        tokens = Tokens(ISSUER, AUDIENCE, str(file), now=clock.time)
        for text in (None, None, b"{", FIRST, None):
            if text is not None:
                file.write_bytes(text)
            clock.now += 1
            assert is_valid(tokens, OLD)
    assert [message.rpartition(": ")[2] for message in caplog.messages if "usable" in message] == ["1 usable keys"] * 2


@pytest.mark.parametrize("text", [None, b"{", key_set(), key_set(jwk("ES256", use="enc"))])
def test_a_start_without_a_usable_key_fails(tmp_path: Path, text: bytes | None) -> None:
    """A file that is missing, malformed or without a usable key stops the start with one line that names it."""
    path = tmp_path / "keys.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(Unavailable) as caught:
        Tokens(ISSUER, AUDIENCE, str(path))
    assert str(caught.value).startswith(f"JWT_JWKS='{path}': ") and "\n" not in str(caught.value)


UNSAFE = """
http://login.example/keys http://127.0.0.1.evil.example/ http://localhost.evil.example/ http://localhost@evil.example/
http://10.0.0.1/ http://[::1/ https:///keys file:///etc/passwd ftp://login.example/keys data://x
"""


def test_an_unsafe_url_is_refused() -> None:
    """Others could serve keys at such a URL; nothing is fetched. https is safe anywhere, http on loopback."""
    issuer = Issuer(FIRST)
    for url in UNSAFE.split():
        with pytest.raises(Unavailable, match="https"):
            from_url(issuer, SetClock(), url)
    assert issuer.requests == 0
    for url in ("https://x.example", "http://localhost:1/k", "http://127.9.9.9/", "http://[::1]:8/"):
        assert is_valid(from_url(Issuer(FIRST), SetClock(), url), OLD), url


def test_a_set_is_cached_for_five_minutes(clock: SetClock) -> None:
    """It is fetched once in that time, and a removed key is refused after the next fetch."""
    issuer = Issuer(BOTH)
    tokens = from_url(issuer, clock)
    issuer.body = SECOND
    clock.now += 299
    assert is_valid(tokens, OLD) and issuer.requests == 1
    clock.now += 1
    assert not is_valid(tokens, OLD) and is_valid(tokens, NEW)
    assert issuer.requests == 2


def test_an_unknown_key_causes_one_fetch_in_ten_seconds(clock: SetClock) -> None:
    """Unknown keys cause one fetch in ten seconds, however many there are; the others are asked for later.

    Only the token that the set was fetched for is refused, and those of a key that was removed.
    """
    issuer = Issuer(FIRST)
    tokens = from_url(issuer, clock)
    strangers = [token("ES256", f"stranger {number}") for number in range(5)]
    assert wait_for(tokens, NEW) == 10
    clock.now += 9.5
    assert wait_for(tokens, strangers[0]) == 1
    clock.now += 0.5
    assert [wait_for(tokens, each) for each in [*strangers, strangers[0], NEW]] == [0, *[10] * 6]
    assert is_valid(tokens, OLD) and issuer.requests == 2
    issuer.body = SECOND
    clock.now += 10
    assert is_valid(tokens, NEW) and [wait_for(tokens, each) for each in (OLD, strangers[0])] == [0, 10]
    assert wait_for(tokens, jwt.encode(GOOD, "s" * 32, "HS256", {"kid": "other"})) == 0
    assert issuer.requests == 3
    clock.now += 300
    assert is_valid(tokens, NEW) and wait_for(tokens, OLD) == 0  # also after a fetch of the same set


def test_a_key_that_was_asked_for_too_early_may_be_new(clock: SetClock) -> None:
    """Somebody guesses the name of the next key, or the issuer signs with it before it is published."""
    issuer = Issuer(FIRST)
    tokens = from_url(issuer, clock)
    clock.now += 60
    assert wait_for(tokens, NEW) == 0 and issuer.requests == 2
    issuer.body = BOTH
    for seconds, left in ((1, 9), (8.9, 1)):
        clock.now += seconds
        assert wait_for(tokens, NEW) == left
    clock.now += 0.2
    assert is_valid(tokens, NEW) and issuer.requests == 3


def test_a_new_key_waits_for_an_issuer_that_cannot_be_asked(clock: SetClock) -> None:
    issuer = Issuer(FIRST)
    tokens = from_url(issuer, clock)
    issuer.body = ConnectionRefusedError("down")
    clock.now += 10
    assert [wait_for(tokens, NEW) for _ in range(2)] == [10, 10] and is_valid(tokens, OLD)
    issuer.body = BOTH
    clock.now += 10
    assert is_valid(tokens, NEW)


def test_a_clock_that_is_set_back_stops_no_fetch(clock: SetClock) -> None:
    issuer = Issuer(FIRST)
    tokens = from_url(issuer, clock)
    issuer.body = SECOND
    clock.now -= 100_000
    assert not is_valid(tokens, OLD)
    clock.now -= 100_000
    assert is_valid(tokens, NEW)  # fetched again, so that the next fetch is not due
    issuer.body = BOTH
    clock.now += 10
    assert is_valid(tokens, OLD)  # nor does it matter that a key was searched in the future


def test_a_set_stays_in_use_while_it_cannot_be_fetched(clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
    """Known tokens stay valid, each error is logged once, and the fetch is retried every ten seconds."""
    issuer = Issuer(FIRST)
    tokens = from_url(issuer, clock)
    issuer.body = ConnectionRefusedError("down")
    clock.now += 300
    with caplog.at_level(logging.WARNING, "restkeeper"):
        for _ in range(30):
            assert is_valid(tokens, OLD)
            clock.now += 1
    assert len(caplog.messages) == 1 and issuer.requests == 1 + 3
    issuer.body = SECOND
    clock.now += 10
    assert is_valid(tokens, NEW) and not is_valid(tokens, OLD)


def test_without_a_key_set_tokens_return_503(clock: SetClock) -> None:
    """The service starts although its issuer is down; the fetch is retried every ten seconds."""
    issuer = Issuer(FIRST)
    issuer.body = TimeoutError("no answer")
    tokens = from_url(issuer, clock)
    for _ in range(5):
        with pytest.raises(Unavailable) as caught:
            tokens.verify(OLD)
        assert caught.value.headers == {"Retry-After": "10"} and "login.example" not in str(caught.value)
    assert issuer.requests == 1
    issuer.body = FIRST
    clock.now += 10
    assert is_valid(tokens, OLD)


class Gate(Issuer):
    """An issuer that waits with its response until the test allows it."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.open = threading.Event()
        self.reached = threading.Event()
        self.open.set()

    def __call__(self, url: str) -> bytes:
        body = super().__call__(url)
        self.reached.set()
        assert self.open.wait(SECONDS)
        return body

    @contextmanager
    def fetching(self, tokens: Tokens, text: str) -> Iterator[Future[bool]]:
        """While a token is verified that causes a fetch; the issuer responds when the test opens it."""
        self.open.clear()
        self.reached.clear()
        with ThreadPoolExecutor(1) as pool:
            verified = pool.submit(is_valid, tokens, text)
            assert self.reached.wait(SECONDS)
            yield verified
            self.open.set()
            assert verified.result(SECONDS)


def test_concurrent_tokens_of_a_new_key_cause_one_fetch(clock: SetClock) -> None:
    """Those that arrive during the fetch wait for it, and then are valid."""
    issuer = Gate(FIRST)
    tokens = from_url(issuer, clock)
    clock.now += 10
    issuer.body = BOTH
    with ThreadPoolExecutor(8) as pool:
        with issuer.fetching(tokens, NEW):
            verified = [pool.submit(is_valid, tokens, NEW) for _ in range(8)]
        assert all(each.result(SECONDS) for each in verified)
    assert issuer.requests == 2


def test_tokens_of_known_keys_do_not_wait_for_a_fetch(clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("restkeeper.features.jwt.jwks.CACHED_SECONDS", 100)
    issuer = Gate(FIRST)
    tokens = from_url(issuer, clock)
    clock.now += 100
    with issuer.fetching(tokens, OLD):
        assert is_valid(tokens, OLD)
        clock.now += 100  # it takes so long that the next fetch is due
        assert is_valid(tokens, OLD)
    assert issuer.requests == 2


def test_the_wait_for_a_fetch_is_limited(clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a fetch hangs, a token of an unknown key is asked to come again after a few seconds."""
    monkeypatch.setattr("restkeeper.features.jwt.jwks.FETCH_SECONDS", 0.05)
    issuer = Gate(FIRST)
    tokens = from_url(issuer, clock)
    clock.now += 300
    with issuer.fetching(tokens, OLD) as verified:
        assert wait_for(tokens, NEW)
        assert not verified.done()


# A server


def test_a_key_is_rotated_over_http(clock: SetClock) -> None:
    """With a real server: a new key is found, a removed key refused, and an error of the server changes nothing."""
    answers = [answer(FIRST)]

    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send(answers[-1])

    with serving(script) as server:
        tokens = Tokens(ISSUER, AUDIENCE, server.url, now=clock.time)
        assert is_valid(tokens, OLD)
        for seconds, each in ((10, answer(SECOND)), (300, answer(FIRST, 500))):
            answers.append(each)
            clock.now += seconds
            assert is_valid(tokens, NEW) and not is_valid(tokens, OLD)
        assert {request.split(b"\r\n")[0] for request in server.requests} == {b"GET /hook?x=1 HTTP/1.1"}
    clock.now += 10
    assert is_valid(tokens, NEW)


def test_a_slow_response_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One deadline limits the whole fetch, also of a server that sends the head byte by byte."""
    monkeypatch.setattr("restkeeper.features.jwt.jwks.FETCH_SECONDS", 0.3)

    def script(connection: EndpointConnection) -> None:
        connection.request()
        connection.send_slowly(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000)

    with serving(script) as endpoint, pytest.raises(OSError, match="timed out after 0.3 s"):
        fetch(endpoint.url)


def test_a_fetch_is_limited() -> None:
    """Redirects are not followed, at most 1 MiB is read, and the body of an error is no key set.

    A server that speaks another protocol is treated as unreachable.
    """
    for response in (
        answer(FIRST, 302, "Location: /elsewhere"),
        answer(b" " * MOST_BYTES + FIRST),
        answer(FIRST, 404),
        answer(FIRST, 200, "Transfer-Encoding: chunked"),  # and its body is not
    ):
        with serving(replying(response)) as server:
            with pytest.raises(OSError):
                fetch(server.url)
            assert len(server.requests) == 1
