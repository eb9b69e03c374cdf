"""A login to try: the users of a JSON file register and log in, and have items of their own, as with json-server-auth.

It protects nothing: the token of a user can be made by everybody who knows the path of the file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import jwt
from flask import Blueprint, Request, request
from werkzeug.security import check_password_hash, generate_password_hash

from restkeeper import exactjson
from restkeeper.config import ConfigError
from restkeeper.errors import BadRequest, Forbidden, Unauthorized
from restkeeper.exactjson import JsonObject
from restkeeper.feature import Seams
from restkeeper.features.files.content import FileError
from restkeeper.features.files.items import views_of
from restkeeper.features.files.paths import MODES
from restkeeper.features.files.threads import in_thread
from restkeeper.resources.call import ADMIN, EVERYBODY, PUBLIC, REALM, Caller
from restkeeper.resources.changes import Change, Command, Unit
from restkeeper.resources.parameters import Queryable
from restkeeper.resources.resource import Resource
from restkeeper.resources.views import Access, PartialView, StoredView, View
from restkeeper.service import Service
from restkeeper.storage.base import Store, Transaction
from restkeeper.storage.errors import RecordNotFound
from restkeeper.storage.interface import Filter, Op, Query, Record, field_in, root_of
from restkeeper.versions import prefix_of
from restkeeper.web.application import Reply, Stage, Wsgi
from restkeeper.web.auth import CALLER, Credentials, caller, needs
from restkeeper.web.bodies import JSON, require_acceptable
from restkeeper.web.handlers import UNCACHED, CollectionHandlers
from restkeeper.web.operations import (
    BODY_PROBLEMS,
    COMPARED,
    IDEMPOTENT,
    Body,
    Contribution,
    Result,
    returned,
    returns,
    takes,
)

EMAIL, PASSWORD = "email", "password"
VALID_SECONDS = 3600  # of a token
MOST_HASHED = 2  # passwords at the same time
SHORTEST, LONGEST_EMAIL = 4, 254  # characters of a password; of an address (RFC 5321, section 4.5.3.1.3)

_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
_SCRYPT = "scrypt:16384:8:1"  # some 50 ms
_BCRYPT = re.compile(r"\$2[aby]\$")
_MODE = "restkeeper.mode"  # in the WSGI environment: the guard in the path
_HASH = "restkeeper.hash"  # in the WSGI environment: the sent password, and its hash
_HASHING = BoundedSemaphore(MOST_HASHED)  # each takes a processor, and 16 MiB
_USER = "login:"  # begins the id of a caller who is logged in
_CHALLENGE = {"WWW-Authenticate": f"Bearer {REALM}"}
_UNKNOWN = "Missing authorization header, or its token is not valid any more"

_WRITTEN = {"type": "string", "writeOnly": True}
_SENT = {"type": "object", "required": [EMAIL, PASSWORD], "properties": {EMAIL: {"type": "string"}, PASSWORD: _WRITTEN}}
_TOKEN = Result(
    "The token, and the user.", {JSON: returned({"accessToken": {"type": "string"}, "user": {"type": "object"}})}
)


def install(service: Service, path: Path, name: str, suffix: str, guards: Mapping[str, str]) -> Seams:
    """Let the items of the collection `name` of the file at a path log in. Raises ConfigError and FileError.

    Names of fields that refer to others end in the `suffix`; `guards` has the modes of collections.
    """
    if not service.guard.local_only:
        raise ConfigError("--login protects nothing, and is for this machine alone: it needs AUTH=open")
    by_name = views_of(service)
    users = by_name.get(name)
    if users is None or users.resource.singleton or not field_in(users.queryable.fields, EMAIL):
        raise FileError(f"{path.name}: --login {name}: must be an array, of items with {EMAIL} and {PASSWORD}")
    if unknown := sorted(guards.keys() - by_name.keys()):
        raise FileError(f"{path.name}: {unknown[0]}: there is no such collection to guard")
    for stored in by_name.values():
        stored.access = _OwnedAccess(stored.resource)
        names = (name for name, field in stored.revision.followed.items() if field.to == users.name)
        owner = next(names, users.resource.singular + (suffix or "Id"))
        stored.owner_name = users.schema.id_name if stored is users else owner
    shown, login = _ShownView(users), _Login(service, users, path, guards)
    routes = Blueprint("_login", __name__)  # no collection is called so
    routes.add_url_rule("/login", view_func=login.log_in, methods=["POST"])
    routes.add_url_rule("/register", view_func=login.register, methods=["POST"])
    routes.add_url_rule("/me", view_func=login.read_me)
    return Seams(
        arriving=(login.arriving,),
        checking=((Stage.CALLER, login.restrict),),
        identify=(Credentials(login.resolve, schemes={"basic": str.strip}),),  # of another service: ignored
        view=(lambda views, stored, version: shown if stored is users else views,),
        changing=(login.changing,),
        routes=(routes,),
        describe=(Contribution(amend=login.amend),),
    )


class _OwnedAccess(Access):
    """See `Access`. Callers without the scopes for the items of all reach their own."""

    def __init__(self, resource: Resource) -> None:
        self.reads, self.writes = (resource.scope(f"{way}-all") for way in ("read", "write"))

    def owners(self, caller: Caller) -> tuple[str, ...] | None:
        return None if caller.may(self.reads) else caller.owners

    def require_sight(self, caller: Caller, record: Record) -> None:
        _require_own(caller, self.reads, record, "access: entity")

    def require_change(self, caller: Caller, record: Record) -> None:
        _require_own(caller, self.writes, record, "access: entity")


class _ShownView(PartialView):
    """Users whose password can be set, and is not shown; a search in all texts would find it, so there is none."""

    def __init__(self, whole: View) -> None:
        super().__init__(whole, (), {}, {})
        self.fingerprint += f"-{PASSWORD}"
        self.names = tuple(name for name in whole.names if name != PASSWORD)
        fields = {name: field for name, field in whole.queryable.fields.items() if root_of(name) != PASSWORD}
        refused = {**whole.queryable.refused, PASSWORD: "is never shown"}
        self.queryable = Queryable(fields, self.names, refused, is_searched=False)

    def reduced(self, body: bytes) -> bytes:
        return exactjson.joined({name: text for name, text in exactjson.cut(body).items() if name != PASSWORD})

    def replace(self, record: Record, sent: JsonObject, **options: Any) -> Record:
        had = {name: text for name, text in exactjson.cut(record.body).items() if name == PASSWORD}
        return super().replace(record, {**had, **sent}, **options)


class _Login:
    """The functions of the feature, for the users in the file at a path; `guards` has the modes of collections."""

    def __init__(self, service: Service, users: StoredView, path: Path, guards: Mapping[str, str]) -> None:
        self._service, self._users, self._guards = service, users, guards
        # As of json-server-auth, it stays the same: who starts the service again is still logged in.
        self._key = sha256(f"restkeeper --login {path}".encode()).digest()
        self._scopes = lru_cache(64)(self._scopes_of)
        app, others = service.app, {"signup": "/register", "signin": "/login"}
        self._aliases = {
            f"/{name}": app.service_path(other) for name, other in others.items() if name not in app.collections
        }
        self._aliases[f"/{users.resource.public_name}".encode().decode("latin-1")] = app.service_path(
            "/register"
        )  # as in WSGI

    @needs(PUBLIC)
    @takes(IDEMPOTENT, COMPARED, body=Body(_SENT))
    @returns(replace(_TOKEN, status=201), *BODY_PROBLEMS)
    def register(self) -> Reply:
        """Create a user with an e-mail address that no other user has, and a password of 4 characters or more."""
        handlers = self._handlers()
        sent = handlers.body(JSON)
        if isinstance(password := sent.get(PASSWORD), str) and len(password) >= SHORTEST:  # before the transaction
            request.environ[_HASH] = password, _hash_of(password)
        once = self._service.domain.once(sent, lambda answer: self._token(answer.body, 201), secret=True)
        return handlers.execute([Command("create", self._users.name, body=sent)], once)

    @needs(PUBLIC)
    @takes(body=Body(_SENT))
    @returns(_TOKEN, *BODY_PROBLEMS)
    def log_in(self) -> Reply:
        """Return a token of the user with this e-mail address and password, for an hour."""
        handlers = self._handlers()
        _require_texts(sent := handlers.body(JSON), (EMAIL, PASSWORD))
        found = self._find(self._service.store, sent[EMAIL])
        if body := next((body for body in found if _is_right(body, sent[PASSWORD])), None):
            return self._token(handlers.items.whole.reduced(body), 200)
        raise BadRequest("Incorrect password" if found else "Cannot find user")

    @needs(PUBLIC)
    @returns(Result("The user.", {JSON: {"type": "object"}}))
    def read_me(self) -> Reply:
        """Read the user of the token."""
        require_acceptable(JSON)
        if not (who := caller()).id.startswith(_USER):
            raise Unauthorized(_UNKNOWN, headers=_CHALLENGE)
        record = self._users.read(self._service.store, who.id.removeprefix(_USER))
        return Reply(self._handlers().items.whole.body(record), content_type=JSON, headers={"Cache-Control": UNCACHED})

    def _handlers(self) -> CollectionHandlers:
        return CollectionHandlers(self._service.writes[self._service.default_version][self._users.name])

    def _token(self, body: bytes, status: int) -> Reply:
        """The response with a token of the user with this body."""
        user, now = exactjson.decoded(body), int(self._service.clock.time())
        claims = {"sub": str(user[self._users.schema.id_name]), EMAIL: str(user.get(EMAIL))}
        token = jwt.encode({**claims, "iat": now, "exp": now + VALID_SECONDS}, self._key).encode()
        content = b'{"accessToken":"%b","user":%b}' % (token, body)
        return Reply(content, status, content_type=JSON, headers={"Cache-Control": UNCACHED})

    def _find(self, source: Store | Transaction, email: str, without: str = "") -> list[bytes]:
        """The users with an address, without regard to case: a file that is written by hand can have several."""
        query = Query((Filter(EMAIL, Op.LIKE, email), Filter("id", Op.NE, without)))
        page = source.page(self._users.name, query)
        return [body for body in page.bodies if str(exactjson.decoded(body)[EMAIL]).casefold() == email.casefold()]

    def resolve(self, token: str, digest: str) -> Caller:
        """The user of a token. One that is none of ours, or not any more, is that of another service: ignored."""
        options: Any = {"require": ["sub", "exp"], "verify_exp": False, "verify_iat": False}
        try:
            claims = jwt.decode(token, self._key, ["HS256"], options)
            id = self._users.read(self._service.store, claims["sub"]).id
            seconds = float(claims["exp"]) - self._service.clock.time()  # by our clock, which a test can move
        except (jwt.PyJWTError, RecordNotFound, ValueError, TypeError):
            return EVERYBODY
        is_valid = 0 < seconds <= VALID_SECONDS
        return Caller(_USER + claims["sub"], frozenset({ADMIN}), (id,)) if is_valid else EVERYBODY

    def arriving(self, following: Wsgi) -> Wsgi:
        """Take the guard out of a path such as /640/posts, and know the other paths of `register` and `log_in`."""

        def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "")
            if path[1:4] in MODES and path[4:5] == "/":
                environ |= {_MODE: path[1:4], "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + path[:4]}
                path = path[4:].removesuffix("/") or "/"
            environ["PATH_INFO"] = self._aliases.get(path, path) if environ["REQUEST_METHOD"] == "POST" else path
            return following(environ, start_response)

        return serve

    def restrict(self, request: Request) -> None:
        """Leave the caller the scopes that the guards do. Raises Unauthorized and Forbidden."""
        environ, mode = request.environ, request.environ.get(_MODE, "")
        needed, who = self._service.guard.needs.get(request.endpoint, PUBLIC), environ[CALLER]
        is_user = who.id.startswith(_USER)
        is_guarded = bool(self._guards or mode) and needed != ADMIN and request.method != "OPTIONS"
        if not is_guarded or not (is_user or who is EVERYBODY):
            return
        name = request.path.removeprefix(prefix_of(self._service.default_version)).lstrip("/").partition("/")[0]
        guarded = (name, mode) if mode and name not in self._guards else ()
        environ[CALLER] = who._replace(scopes=self._scopes(is_user, *guarded))
        if ":" in needed and not environ[CALLER].may(needed):
            if is_user or needed not in self._scopes(True, *guarded):
                raise Forbidden("Read only")
            raise Unauthorized(_UNKNOWN, headers=_CHALLENGE)

    def _scopes_of(self, is_user: bool, name: str = "", mode: str = "") -> frozenset[str]:
        """The scopes of a caller of a request, in whose path the collection `name` has another guard."""
        scopes, guards = {*self._service.guard.scopes} - {ADMIN}, {**self._guards, name: mode}
        for resource in self._service.resources:
            own, users, others = map(int, guards.get(resource.public_name, "666"))
            for bit, way in ((4, "read"), (2, "write")):
                if (others | users * is_user) & bit:
                    scopes.add(resource.scope(f"{way}-all"))
                elif not own * is_user & bit:
                    scopes.discard(resource.scope(way))
        return frozenset(scopes)

    def changing(self, unit: Unit, change: Change) -> Change:
        """Refuse an item of another owner, and a user without an address and password; store its hash."""
        after, is_user, is_new = change.after, change.stored is self._users, change.before is None
        if after is None or unit.call.is_program:  # the file was edited
            return change
        if not (change.follows or (is_user and is_new)):
            what = f"{'creation' if is_new else 'replacement'}: request body"
            _require_own(unit.call.caller, change.stored.resource.scope("write-all"), after, what)
        item, before = change.item or {}, change.item_before or {}
        changed = [name for name in (EMAIL, PASSWORD) if is_user and (is_new or item.get(name) != before.get(name))]
        _require_texts(item, changed)
        if EMAIL in changed:
            if len(item[EMAIL]) > LONGEST_EMAIL or not _ADDRESS.fullmatch(item[EMAIL]):
                raise BadRequest("Email format is invalid")
            if self._find(unit.transaction, item[EMAIL], without=after.id):
                raise BadRequest("Email already exists")
        if PASSWORD not in changed:
            return change
        if len(item[PASSWORD]) < SHORTEST:
            raise BadRequest("Password is too short")
        sent, hashed = request.environ.get(_HASH, ("", ""))
        hashed = hashed if item[PASSWORD] == sent else _hash_of(item[PASSWORD])
        return change.revised({**exactjson.cut(after.body), PASSWORD: hashed})

    def amend(self, document: JsonObject, version: str) -> None:
        """Say in the document that the password can be set."""
        for end in ("Input", "Replacement", "Patch"):
            if schema := document["components"]["schemas"].get(self._users.resource.kind + end):
                schema["properties"][PASSWORD] = _WRITTEN


def _require_own(caller: Caller, scope: str, record: Record, what: str) -> None:
    """Raises Forbidden, in the words of json-server-auth, for an item of others without the scope for all."""
    if not caller.may(scope) and record.owner not in caller.owners:
        raise Forbidden(f"Private resource {what} must have a reference to the owner id")


def _require_texts(item: JsonObject, names: Iterable[str]) -> None:
    """Raises BadRequest for one that is not there, or is empty."""
    if not all(isinstance(item.get(name), str) and item[name].strip() for name in names):
        raise BadRequest("Email and password are required")


def _is_right(user: bytes, password: str) -> bool:
    """Whether a password is that of a user: a hash, or plain as it is written by hand. Raises BadRequest."""
    text = str(exactjson.decoded(user).get(PASSWORD) or "")
    if _BCRYPT.match(text):
        raise BadRequest("the file has a hash of bcrypt, which is not understood: write the password in its place")
    if not text.startswith("scrypt:"):
        return text == password
    with _HASHING:
        return in_thread(check_password_hash, text, password)


def _hash_of(password: str) -> str:
    with _HASHING:
        return in_thread(generate_password_hash, password, _SCRYPT)
