"""The uses of what is deprecated, as they are stored: how many there were, and when each caller was the last time.

A record has a caller's last use, or without a caller the number of all uses. They are in a collection of the store that
has no paths and no events.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from math import inf
from typing import NamedTuple

from restkeeper.clock import Clock, rfc3339
from restkeeper.storage.contract import (
    Collection,
    Field,
    Filter,
    Index,
    Kind,
    Op,
    Query,
    Record,
    Sort,
    Store,
    Transaction,
)
from restkeeper.storage.errors import RecordNotFound, StoreError
from restkeeper.web import exactjson

STORE_SECONDS = 3600.0  # between two writes for a deprecation and a caller, in each process
RETRY_SECONDS = 10.0  # after a write that failed
MOST_CALLERS = 1000  # of each deprecation

# No resource can have this name.
USES = Collection(
    "_deprecations",
    {name: Field(name, Kind.TEXT) for name in ("id", "deprecation", "updated_at")},
    (Index("deprecation"),),
)

_log = logging.getLogger("restkeeper")


class Use(NamedTuple):
    """What is stored: the last use by a caller, or for an empty caller how many uses there were."""

    deprecation: str
    caller: str
    at: str
    times: int = 0

    @property
    def id(self) -> str:
        """The id of the record."""
        return blake2b(f"{self.deprecation}\n{self.caller}".encode(), digest_size=16).hexdigest()

    def record(self) -> Record:
        """The record to store. That of a number has another name of `deprecation`: it is none of the callers'."""
        body = {
            "id": self.id,
            "deprecation": self.deprecation if self.caller else f"{self.deprecation} in all",
            "updated_at": self.at,
            "use": list(self),
        }
        return Record(self.id, 1, self.at, "", exactjson.dumps(body))


class Uses:
    """Counts uses, and stores them: each caller's last one at most once in STORE_SECONDS."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._due: dict[str, dict[str, float]] = {}  # when to store a caller's use again, by deprecation
        self._counts: Counter[str] = Counter()  # of uses that are not stored yet
        self._changing = threading.Lock()
        self._has_failed = False

    def note(self, names: Sequence[str], caller: str) -> None:
        """Note that a caller has used these. Raises nothing if the store has no room or no time for it."""
        now = self._clock.time()
        with self._changing:
            self._counts.update(names)
            due = [name for name in names if self._is_due(name, caller, now)]
            for name in due:
                self._set(name, caller, now + STORE_SECONDS)
        for name in due:
            self._save(Use(name, caller, rfc3339(now)), now)

    def _is_due(self, name: str, caller: str, now: float) -> bool:
        return not now < self._due.get(name, {}).get(caller, -inf) <= now + STORE_SECONDS  # whatever a clock said

    def _set(self, name: str, caller: str, due: float) -> None:
        callers = self._due.setdefault(name, {})
        callers.pop(caller, None)
        callers[caller] = due
        if len(callers) > MOST_CALLERS:
            del callers[next(iter(callers))]

    def _save(self, use: Use, now: float) -> None:
        """Store a use, or leave it to a later one if others write."""
        with self._changing:
            count = self._counts.pop(use.deprecation, 0)
        try:
            stale = self._stale(use)
            self._store.write(partial(_write, use, count, stale), wait=False, use_reserve=True)
        except StoreError as error:
            with self._changing:
                self._counts[use.deprecation] += count
                self._set(use.deprecation, use.caller, now + RETRY_SECONDS)
            if not self._has_failed:
                self._has_failed = True
                _log.warning("a use of %s is not stored now: %s", use.deprecation, error.detail)

    def _stale(self, use: Use) -> list[str]:
        """The ids of the oldest uses, for which there is no room beside this one."""
        of_callers = Query(filters=(Filter("deprecation", Op.EQ, use.deprecation),), sort=(Sort("updated_at"),))
        if (excess := self._store.count(USES.name, of_callers) - MOST_CALLERS + 1) <= 0:
            return []
        page = self._store.page(USES.name, Query(of_callers.filters, sort=of_callers.sort, limit=excess))
        return [each.id for each in map(_read, page.bodies) if each.id != use.id]


def stored_uses(store: Store) -> Iterator[Use]:
    """All that is stored."""
    return (_read(record.body) for record in store.scan(USES.name))


def _write(use: Use, count: int, stale: Iterable[str], transaction: Transaction) -> None:
    total = Use(use.deprecation, "", use.at)
    before = _find(transaction, total.id)
    _put(transaction, total._replace(times=count + (before.times if before else 0)), before)
    known = _find(transaction, use.id)
    _put(transaction, use, known)
    for id in stale if not known else ():
        try:
            transaction.delete(USES.name, id)
        except RecordNotFound:
            continue  # another process was first


def _find(transaction: Transaction, id: str) -> Use | None:
    try:
        return _read(transaction.read(USES.name, id).body)
    except RecordNotFound:
        return None


def _put(transaction: Transaction, use: Use, before: Use | None) -> None:
    (transaction.update if before else transaction.insert)(USES.name, use.record())


def _read(body: bytes) -> Use:
    return Use(*exactjson.loads(body)["use"])
