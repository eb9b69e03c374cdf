"""Paging in headers: Link (RFC 8288) and X-Total-Count, by offset or by an opaque cursor.

A cursor says "beyond this item, in this order, of this list": it holds the sort keys and the id at an end of a page,
and a checksum that binds it to the list, sort and filters it was made for. It needs no secret: it opens nothing that
its holder could not request by plain parameters.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import urlencode

import orjson
from flask import request

from restkeeper.errors import InvalidQuery
from restkeeper.resources.parameters import Arguments, refused
from restkeeper.resources.queries import ListRequest
from restkeeper.storage.interface import Page, Position, Query
from restkeeper.web.application import address_of

LINK_BYTES = 4096  # of a Link header: what proxies have room for, and fetch of Node together with the other headers

_CHECKSUM = 8  # bytes
_LEFT_OUT = ("last", "first", "prev")  # if there is no room, in this order; a walk needs `next`
_PAGING = ("cursor", "offset", "limit", "fields", "export")  # what may change from page to page of one walk


def resolve(listing: ListRequest, query: Query, path: str, args: Arguments) -> Query:
    """The query with its cursor read. Raises InvalidQuery for a cursor that is malformed or of another list."""
    if listing.cursor is None:
        return query
    try:
        token = urlsafe_b64decode(listing.cursor.encode("ascii") + b"=" * (-len(listing.cursor) % 4))
        checksum, payload = token[:_CHECKSUM], token[_CHECKSUM:]
        if checksum != _checksum(payload, _bound(path, args, listing)) or _token(token) != listing.cursor:
            raise ValueError
        backward, *after = orjson.loads(payload)
        # It may be no position in this order: a cursor has a checksum and no signature, so that a client can make one.
        keys = [key.name for key in query.sort]
        width = keys.index("id") + 1 if "id" in keys else len(keys) + 1
        fits = len(after) in (0, width) and all(
            value is None or type(value) in (str, float) or (type(value) is int and -(2**63) <= value < 2**63)
            for value in after
        )
        if type(backward) is not bool or not fits:
            raise ValueError
    except (ValueError, TypeError):
        detail = "is not one that this list gave for this sort and these filters: begin again without it"
        raise refused("cursor", detail) from None
    return query._replace(after=tuple(after), backward=backward)


def links(listing: ListRequest, query: Query, page: Page, total: int | None, path: str, args: Arguments) -> str:
    """The value of the Link header: first, prev, next and last as far as there are such pages. Raises InvalidQuery."""
    if listing.by_offset:
        offset, limit = listing.query.offset, listing.limit
        offsets = {"first": 0}
        if offset > 0:
            offsets["prev"] = max(0, offset - limit)
        if page.more:
            offsets["next"] = offset + limit
        if total is not None:
            offsets["last"] = max(0, (total - 1) // limit * limit)
        positions = {rel: f"offset={start}" for rel, start in offsets.items()}
    else:
        before, beyond = (page.more, bool(query.after)) if query.backward else (bool(query.after), page.more)
        ends: dict[str, Position] = {"first": ()}
        if before and page.first:
            ends["prev"] = (True, *page.first)
        if beyond and page.last:
            ends["next"] = (False, *page.last)
        ends["last"] = (True,)
        bound = _bound(path, args, listing)
        positions = {rel: f"cursor={_cursor(end, bound)}" if end else "" for rel, end in ends.items()}
    others = urlencode({name: args[name] for name in args if name not in ("cursor", "offset")}, doseq=True)
    address = address_of(path)
    return link_header({rel: _target(address, "&".join(filter(None, (others, end)))) for rel, end in positions.items()})


def target_with(name: str, value: str | None) -> str:
    """The target of the current request with another value of a parameter; without that if the value is None."""
    pairs = [pair for pair in request.args.items(multi=True) if pair[0] != name]
    return _target(address_of(request.path), urlencode(pairs if value is None else [*pairs, (name, value)]))


def link_header(targets: Mapping[str, str]) -> str:
    """The value of a Link header (RFC 8288) of at most LINK_BYTES: of long ones some are left out, `next` is not.

    Raises InvalidQuery where that alone is too long.
    """
    links = {rel: f'<{target}>; rel="{rel}"' for rel, target in targets.items()}
    for rel in _LEFT_OUT:
        if len(value := ", ".join(links.values())) <= LINK_BYTES:
            return value
        links.pop(rel, None)
    if len(value := ", ".join(links.values())) > LINK_BYTES:
        raise InvalidQuery(
            f"the address of the next page would be longer than {LINK_BYTES} bytes, which is what a Link header has "
            "room for: ask for fewer values at a time"
        )
    return value


def _target(address: str, parameters: str) -> str:
    return f"{address}{'?' if parameters else ''}{parameters}"


@lru_cache(maxsize=1024)  # the ends of the first pages are needed most; a position can have some KiB
def _cursor(position: Position, bound: bytes) -> str:
    payload = orjson.dumps(position)
    return _token(_checksum(payload, bound) + payload)


def _token(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _checksum(payload: bytes, bound: bytes) -> bytes:
    return blake2b(bound + payload, digest_size=_CHECKSUM).digest()


def _bound(path: str, args: Arguments, listing: ListRequest) -> bytes:
    """A digest of the parameters that a walk must not change: the list, its sort and filters, in any order.

    All names are those that callers know, so that a walk through an older version goes on when a field gets another.
    """
    sort = [(key.name, key.descending) for key in listing.query.sort or listing.order]
    pairs = sorted((name, value) for name in args if name not in _PAGING for value in args[name])
    bound = orjson.dumps([path, sort, pairs])
    return blake2b(bound, digest_size=16).digest()
