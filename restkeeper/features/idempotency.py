"""Idempotency-Key: a repeated POST is executed once and gets the first response again.

This follows draft-ietf-httpapi-idempotency-key-header-07, and Stripe's API where the draft is silent. The response is
stored in the transaction of its change: both are stored, or neither. The first change of the transaction claims the
key: a concurrent request with the same key waits for its end, and then finds the response. Responses with errors are
not stored.
"""

import re
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson
from flask import Request
from werkzeug.datastructures import Headers

from restkeeper import exactjson
from restkeeper.config import Config
from restkeeper.errors import Problem
from restkeeper.feature import Seams, loaded
from restkeeper.resources.call import ADMIN, Call
from restkeeper.resources.changes import Answer, Once
from restkeeper.service import Service
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.interface import StoredResponse
from restkeeper.web import current_request
from restkeeper.web.application import Reply
from restkeeper.web.auth import caller_in
from restkeeper.web.operations import COMPARED, IDEMPOTENT, UNUSED, Contribution

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

FERNET, INVALID = "cryptography.fernet:Fernet", "cryptography.fernet:InvalidToken"  # loaded with the first key
LONGEST = 255  # characters of a key
UNCOMPRESSED = 64 * 1024  # bytes of a response; a larger one is stored compressed
SWEEP_ONE_IN = 64  # one of so many new responses deletes expired ones,
SWEPT = 128  # this many at most: more than are stored, so that they never accumulate

_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')  # a string of RFC 9651, section 3.3.3
_BARE = re.compile(r"[!#-~](?:[ -~]*[!-~])?")
_PATTERN = r'^([!#-~]([ -~]*[!-~])?|"([ !#-\[\]-~]|\\["\\])+")$'  # both of them, as JSON Schema has it


def install(service: Service) -> Seams:
    """Execute each POST with a key only once."""
    config, now = service.config, service.clock.time
    revisions = [(items.name, revision) for items in service.resources for revision in items.revisions.values()]
    private = {f"{name}.{field}": scope for name, one in revisions for field, scope in one.private.items()}
    policy = Idempotency(config.idempotency_ttl, config.idempotency == "required", private, now)
    return Seams(once=policy.once, ahead=(response_key,), describe=tuple(_contributions(config)))


class IdempotencyKeyMissing(Problem):
    status, name, title = 400, "idempotency-key-missing", "An idempotency key is required"
    about = (
        "This service accepts only a POST that can be repeated safely (`IDEMPOTENCY=required`): send a new "
        "`Idempotency-Key` with each request, and the same key with a repetition."
    )


class IdempotencyKeyInvalid(Problem):
    status, name, title = 400, "idempotency-key-invalid", "The idempotency key is malformed"
    about = (
        "An `Idempotency-Key` is 1 to 255 printable ASCII characters, bare or as a quoted string; for example a UUID."
    )


class IdempotencyKeyReused(Problem):
    status, name, title = 422, "idempotency-key-reused", "The idempotency key was used for something else"
    about = (
        "This `Idempotency-Key` was used for a request with another body or query, or when its caller had other scopes "
        "or owners, or could read other fields. Use a new key for each operation."
    )


def _contributions(config: Config) -> Iterator[Contribution]:
    """The description of keys. Where they are optional, no operation has the problem that one is missing."""
    required = config.idempotency == "required"
    about = (
        "A new key for each new request, the same key for a retry: the request is then executed once, and a retry gets "
        f"the first response again, for {config.idempotency_ttl} seconds. 1 to {LONGEST} characters, bare or quoted."
    )
    schema = {"type": "string", "minLength": 1, "maxLength": 512, "pattern": _PATTERN}
    key = {"name": "Idempotency-Key", "in": "header", "required": required, "description": about, "schema": schema}
    replayed = {
        "description": "This is the response to an earlier request with the same key.",
        "schema": {"type": "string", "const": "true"},
    }
    yield Contribution(IDEMPOTENT if required else UNUSED, problems=(IdempotencyKeyMissing,))
    yield Contribution(
        IDEMPOTENT,
        parameters={"IdempotencyKey": key},
        headers={"Idempotent-Replayed": replayed},
        problems=(IdempotencyKeyInvalid,),
        about="A `POST` with an `Idempotency-Key` can be repeated until a response arrives.",
    )
    yield Contribution(COMPARED, problems=(IdempotencyKeyReused,))


@dataclass(frozen=True)
class Idempotency:
    """The policy: for how many seconds responses are stored, and whether every POST needs a key.

    With other scopes or owners than the first request had, a repetition is another one: it might be refused by now, or
    read other fields or items. So it is when another deployment has made fields `private`, each by a scope. These are
    of all revisions, and not those of the views: a stored response can be of a version that is served no more.
    """

    seconds: int
    required: bool
    private: Mapping[str, str]
    now: Callable[[], float]

    def once(self, sent: Any, render: Callable[[Answer], Reply], *, secret: bool = False) -> Once:
        """The record of the current request, whose body is this JSON value; `render` makes the response of an answer.

        A `secret` response is encrypted with the key and the caller's credentials; the store has neither.
        Raises IdempotencyKeyInvalid, and IdempotencyKeyMissing if a key is required.
        """
        environ = current_request().environ
        field = environ.get("HTTP_IDEMPOTENCY_KEY")
        if field is None:
            if self.required:
                raise IdempotencyKeyMissing("send an Idempotency-Key, a new one for each new request")
            return Once(render)
        key = read_key(field)
        who = caller_in(environ)
        id = _id_of(environ, who.id, key)
        seal = None
        if secret:
            secrets = [environ.get("HTTP_AUTHORIZATION", ""), environ.get("HTTP_X_API_KEY", ""), key]
            seal = loaded(FERNET)(urlsafe_b64encode(sha256(orjson.dumps(secrets)).digest()))
        now = self.now()
        query = environ.get("QUERY_STRING", "")  # such as an owner
        reach = None if who.may(ADMIN) else [sorted(who.scopes), sorted(who.owners)]  # an admin's has no bounds
        if reach and (unreadable := sorted(name for name, scope in self.private.items() if not who.may(scope))):
            reach.append(unreadable)
        more = [query, reach] if reach else [query] if query else []
        try:  # the order of names makes no difference
            fingerprint = sha256(exactjson.dumps([*more, sent] if more else sent, sort=True)).hexdigest()
        except orjson.JSONEncodeError:
            fingerprint = ""  # of a body with invalid text, which is never stored
        return KeyedOnce(render, id, fingerprint, seal, now, now - self.seconds)


def response_key(request: Request, caller: str) -> bytes | None:
    """The id of the response that a request of this caller will look for; None without a valid idempotency key."""
    field = request.environ.get("HTTP_IDEMPOTENCY_KEY")
    if field is None or request.method != "POST":
        return None
    with suppress(IdempotencyKeyInvalid):  # it is refused later, in its place
        return _id_of(request.environ, caller, read_key(field))
    return None


def _id_of(environ: dict[str, Any], caller: str, key: str) -> bytes:
    path = [environ.get("SCRIPT_NAME", ""), environ.get("PATH_INFO", "")]  # PEP 3333: they may be missing
    return sha256(orjson.dumps([caller, *path, key])).digest()


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


@dataclass
class KeyedOnce(Once):
    render: Callable[[Answer], Reply]
    id: bytes
    fingerprint: str
    seal: "Fernet | None"
    now: float
    oldest: float

    def find(self, call: Call, store: Store) -> Reply | None:
        response = call.read_ahead_or_now(store, self.id)
        if not isinstance(response, StoredResponse) or response.stored_at < self.oldest:
            return None
        head, _, body = response.body.partition(b"\n")
        fingerprint, status, headers, *coding = orjson.loads(head)
        if fingerprint != self.fingerprint:
            raise IdempotencyKeyReused(
                "this key was used with another body or query, or by who had other scopes, owners or readable fields: "
                "use another one"
            )
        headers.append(("Idempotent-Replayed", "true"))
        try:
            body = self.seal.decrypt(body) if self.seal else body
        except loaded(INVALID):
            raise IdempotencyKeyReused("the first response is encrypted with other credentials than these") from None
        body = zlib.decompress(body) if coding else body
        return Reply(body, status, Headers(map(tuple, headers)))

    def claim(self, transaction: Transaction) -> None:
        """Store an expired response, in the place of which `save` stores the right one."""
        transaction.store_response(self.id, StoredResponse(self.oldest - 1, b""), expired_before=self.oldest)

    def save(self, transaction: Transaction, answer: Answer) -> Reply:
        reply = self.render(answer)
        body, coding = reply.get_data(), list[str]()
        if len(body) > UNCOMPRESSED:
            body, coding = zlib.compress(body, 1), ["zlib"]
        head = orjson.dumps([self.fingerprint, reply.status_code, list(reply.headers), *coding])
        stored = head + b"\n" + (self.seal.encrypt(body) if self.seal else body)
        transaction.store_response(self.id, StoredResponse(self.now, stored), expired_before=self.oldest)
        if self.id[0] < 256 // SWEEP_ONE_IN:
            transaction.sweep_responses(self.oldest, SWEPT, latest=2 * self.now - self.oldest)
        return reply
