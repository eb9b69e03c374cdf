"""Signatures by which a receiver knows who sent a webhook, and that it is whole and new (Standard Webhooks 1.0.0).

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence

PREFIX = "whsec_"


def signed(id: str, body: bytes, secrets: Sequence[str], *, now: float) -> dict[str, str]:
    """The headers that say which message this is, when it is sent (`now`, in Unix seconds), and that it is from us.

    There is one signature for each secret, so that a receiver can change to a new one at any time in between. An id
    has no full stop, which parts it from what follows. Raises ValueError for a secret that is not base64.
    """
    timestamp = str(int(now))
    content = b".".join((id.encode(), timestamp.encode(), body))
    signatures = (f"v1,{_signature(secret, content)}" for secret in secrets)
    return {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": " ".join(signatures)}


def _signature(secret: str, content: bytes) -> str:
    key = b64decode(secret.removeprefix(PREFIX), validate=True)
    return b64encode(hmac.digest(key, content, "sha256")).decode()
