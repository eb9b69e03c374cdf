"""Signatures that prove the sender, content and time of a message to a webhook (Standard Webhooks 1.0.0).

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence

PREFIX = "whsec_"


def signed(id: str, body: bytes, secrets: Sequence[str], *, now: float) -> dict[str, str]:
    """The headers with a message's id, the time of sending (`now`, in Unix seconds) and the signatures.

    There is one signature for each secret: after a rotation the receiver can change to the new one at any time. An id
    must not contain the separator, a full stop. Raises ValueError for a secret that is not base64.
    """
    timestamp = str(int(now))
    content = b".".join((id.encode(), timestamp.encode(), body))
    signatures = (f"v1,{_signature(secret, content)}" for secret in secrets)
    return {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": " ".join(signatures)}


def _signature(secret: str, content: bytes) -> str:
    key = b64decode(secret.removeprefix(PREFIX), validate=True)
    return b64encode(hmac.digest(key, content, "sha256")).decode()
