"""Signatures follow Standard Webhooks: its own library verifies them, and refuses any other."""

import time
from base64 import b64decode

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from restkeeper.features.webhooks.handlers import new_secret
from restkeeper.features.webhooks.signature import signed

BODY = '{"word": "größer"}'.encode()
SECRET = new_secret()


def verify(secret: str, headers: dict[str, str], body: bytes = BODY) -> None:
    Webhook(secret).verify(body, headers)


def test_the_library_verifies_a_signed_message() -> None:
    """A body with its headers is valid."""
    verify(SECRET, signed("msg_1", BODY, [SECRET], now=time.time()))


def test_a_changed_body_is_refused() -> None:
    """The signature covers the bytes of the body."""
    with pytest.raises(WebhookVerificationError, match="No matching"):
        verify(SECRET, signed("msg_1", BODY, [SECRET], now=time.time()), BODY + b" ")


@pytest.mark.parametrize("name, value", [("webhook-id", "msg_2"), ("webhook-timestamp", -60)])
def test_a_changed_header_is_refused(name: str, value: str | int) -> None:
    """The signature covers the id and the time."""
    with pytest.raises(WebhookVerificationError, match="No matching"):
        now = time.time()
        changed = {name: value if isinstance(value, str) else str(int(now) + value)}
        verify(SECRET, signed("msg_1", BODY, [SECRET], now=now) | changed)


def test_an_old_message_is_refused() -> None:
    """The time is the given one, in seconds, so that a receiver detects a replay."""
    with pytest.raises(WebhookVerificationError, match="too old"):
        verify(SECRET, signed("msg_1", BODY, [SECRET], now=time.time() - 600))


def test_another_secret_is_refused() -> None:
    """Only the owner of the secret can sign."""
    with pytest.raises(WebhookVerificationError, match="No matching"):
        verify(new_secret(), signed("msg_1", BODY, [SECRET], now=time.time()))


@pytest.mark.parametrize("which", [0, 1])
def test_a_message_with_two_signatures_verifies_with_either(which: int) -> None:
    """During a rotation a receiver may have the old secret or the new one."""
    secrets = [SECRET, new_secret()]
    verify(secrets[which], signed("msg_1", BODY, secrets, now=time.time()))


def test_headers_follow_the_specification() -> None:
    """The expected values were computed elsewhere (openssl dgst -sha256 -mac HMAC)."""
    headers = signed("msg_1", b"{}", ["whsec_" + "A" * 43 + "="], now=1700000000.9)
    assert headers == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": "v1,LzeNxZHo3O8fwpFJpLh/0B99ugILNFJw+/9lTgx0APs=",
    }


def test_a_new_secret_has_32_random_bytes() -> None:
    """It is in the form that libraries read, and different each time."""
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(secret.startswith("whsec_") and len(b64decode(secret[6:], validate=True)) == 32 for secret in secrets)


def test_an_invalid_secret_raises_an_error() -> None:
    """Invalid base64 is not silently read as another secret."""
    with pytest.raises(ValueError):
        signed("msg_1", BODY, [SECRET[:10] + "!" + SECRET[10:]], now=0)
