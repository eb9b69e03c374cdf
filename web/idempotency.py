"""Idempotency-Key: a POST that is sent again is answered as it first was, and done once.

draft-ietf-httpapi-idempotency-key-header-07, and Stripe's practice where that is silent. The answer is kept in the very
transaction of what it tells of, so that either both are there or neither. A twin that arrives meanwhile waits for its
turn to write and then finds the answer: no request is ever refused for being under way. Failures are not kept.
"""

import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson
from cryptography.fernet import Fernet
from flask import Request, request
from werkzeug.datastructures import Headers

from errors import IdempotencyKeyInvalid, IdempotencyKeyMissing, IdempotencyKeyReused, NotFound
from storage.contract import Collection, Field, Index, Kind, Record, Transaction
from web.application import Reply
from web.caller import caller
from web.clock import rfc3339

# An answer's id is a digest of who sent which key where; `updated_at` is when it was first given.
ANSWERS = Collection("answers", {"updated_at": Field("updated_at", Kind.TIME)}, (Index("updated_at"),))

LONGEST = 255  # characters of a key
SWEPT = 2  # expired answers that each new one takes away: more than come, so that they never pile up

_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')  # a string of RFC 9651, section 3.3.3
_BARE = re.compile(r"[!#-~](?:[ -~]*[!-~])?")

Read = Callable[[str, str], Record]


class Once:
    """What is done once for a request; this one, without a key, whenever it is asked for."""

    def kept(self, read: Read) -> Reply | None:
        """The answer that was given before, if any. Raises IdempotencyKeyReused when that was to something else."""
        return None

    def keep(self, transaction: Transaction, reply: Reply) -> Reply:
        """Keep `reply` as the answer, in the transaction of what it tells of."""
        return reply


class Idempotency:
    """The policy: for how many seconds answers are kept, and whether every POST must bear a key."""

    def __init__(self, seconds: int, *, required: bool = False, now: Callable[[], float] = time.time) -> None:
        self.seconds = seconds
        self._required = required
        self._now = now

    def once(self, sent: Any, *, secret: bool = False) -> Once:
        """How often the current request, with this JSON value for a body, is to be done.

        What it is answered is sealed with the key itself if it is `secret`. Raises IdempotencyKeyInvalid, and
        IdempotencyKeyMissing where one is required.
        """
        asked: Request = request._get_current_object()  # type: ignore[attr-defined] # a proxy asks anew at every dot
        field = asked.environ.get("HTTP_IDEMPOTENCY_KEY")
        if field is None:
            if self._required:
                raise IdempotencyKeyMissing("send an Idempotency-Key, a new one for each thing that is to be done")
            return Once()
        key = read_key(field)
        now = self._now()
        return _Keyed(asked.path, caller().id, key, sent, rfc3339(now), rfc3339(now - self.seconds), secret)

    def sweep(self, transaction: Transaction, limit: int) -> int:
        """Take away at most so many answers that have expired; how many there were."""
        return transaction.sweep(ANSWERS.name, rfc3339(self._now() - self.seconds), limit)


def read_key(field: str) -> str:
    """The key in a header field, quoted or bare. Raises IdempotencyKeyInvalid."""
    field = field.strip(" \t")
    if quoted := _QUOTED.fullmatch(field):
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    else:
        key = field if _BARE.fullmatch(field) else ""
    if not 0 < len(key) <= LONGEST:
        raise IdempotencyKeyInvalid(f"a key is 1 to {LONGEST} printable ASCII characters, bare or as one quoted string")
    return key


class _Keyed(Once):
    def __init__(self, path: str, caller: str, key: str, sent: Any, now: str, oldest: str, secret: bool) -> None:
        self._id = sha256(json.dumps([caller, path, key]).encode()).hexdigest()
        self._print = sha256(json.dumps(sent, sort_keys=True, default=repr).encode()).hexdigest()
        self._seal = Fernet(urlsafe_b64encode(sha256(f"seal {key}".encode()).digest())) if secret else None
        self._now = now
        self._oldest = oldest
        self._stale = False

    def kept(self, read: Read) -> Reply | None:
        try:
            record = read(ANSWERS.name, self._id)
        except NotFound:
            return None
        if record.updated_at < self._oldest:
            self._stale = True
            return None
        answer = orjson.loads(record.body)
        if answer["print"] != self._print:
            raise IdempotencyKeyReused("the first request with this key had another body; take a new key for this one")
        body = answer["body"].encode()
        headers = Headers([*map(tuple, answer["headers"]), ("Idempotent-Replayed", "true")])
        return Reply(self._seal.decrypt(body) if self._seal else body, answer["status"], headers)

    def keep(self, transaction: Transaction, reply: Reply) -> Reply:
        body = reply.get_data()
        answer = {
            "print": self._print,
            "status": reply.status_code,
            "headers": list(reply.headers),
            "body": (self._seal.encrypt(body) if self._seal else body).decode(),
        }
        record = Record(self._id, 1, self._now, "", orjson.dumps(answer))
        (transaction.update if self._stale else transaction.insert)(ANSWERS.name, record)
        transaction.sweep(ANSWERS.name, self._oldest, SWEPT)
        return reply
