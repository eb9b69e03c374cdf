"""The uses of what is deprecated, as they are stored: how many there were, and when each caller was the last time.

A record has a caller's last use, or without a caller the number of all uses. They are in a collection of the store that
has no paths and no events.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
MOST_KNOWN = 20 * MOST_CALLERS  # callers of each that a process remembers, so that it does not store them again

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
            due = [Use(name, caller, rfc3339(now)) for name in names if self._is_due(name, caller, now)]
            counts = {use.deprecation: self._counts.pop(use.deprecation) for use in due}
            self._wait(due, now + STORE_SECONDS)
        if due:
            try:
                self._save(due, counts)
            except StoreError as error:  # others write, or there is no space
                self._save_later(due, counts, now, error)

    def _is_due(self, name: str, caller: str, now: float) -> bool:
        return not now < self._due.get(name, {}).get(caller, -inf) <= now + STORE_SECONDS  # whatever a clock said

    def _wait(self, used: Iterable[Use], until: float) -> None:
        """Store these callers' uses again at that time, and forget the oldest callers."""
        for use in used:
            callers = self._due.setdefault(use.deprecation, {})
            callers.pop(use.caller, None)
            callers[use.caller] = until
            if len(callers) > MOST_KNOWN:
                del callers[next(iter(callers))]

    def _save(self, used: Sequence[Use], counts: Mapping[str, int]) -> None:
        """Store uses in one transaction, which does not wait for others. Raises StoreError."""
        stale = [id for use in used for id in self._stale(use)]

        def work(transaction: Transaction) -> None:
            for use in used:
                _write(transaction, use, counts[use.deprecation])
            for id in stale:
                _delete(transaction, id)

        self._store.write(work, wait=False)

    def _save_later(self, used: Sequence[Use], counts: Mapping[str, int], now: float, error: StoreError) -> None:
        with self._changing:
            self._counts.update(counts)
            self._wait(used, now + RETRY_SECONDS)
            is_first, self._has_failed = not self._has_failed, True
        if is_first:
            _log.warning("a use of %s is not stored now: %s", used[0].deprecation, error.detail)

    def _stale(self, use: Use) -> list[str]:
        """The ids of the oldest uses, for which there is no room beside this one, if it is not stored yet."""
        of_callers = Query(filters=(Filter("deprecation", Op.EQ, use.deprecation),), sort=(Sort("updated_at"),))
        if (excess := self._store.count(USES.name, of_callers) - MOST_CALLERS + 1) <= 0:
            return []
        with suppress(RecordNotFound):
            self._store.read(USES.name, use.id)
            return []
        return [_read(body).id for body in self._store.page(USES.name, replace(of_callers, limit=excess)).bodies]


def stored_uses(store: Store) -> Iterator[Use]:
    """All that is stored."""
    return (_read(record.body) for record in store.scan(USES.name))


def _write(transaction: Transaction, use: Use, times: int) -> None:
    """Store a use, and add to the number of all."""
    total = Use(use.deprecation, "", use.at)
    before = _find(transaction, total.id)
    _put(transaction, total._replace(times=times + (before.times if before else 0)), before)
    _put(transaction, use, _find(transaction, use.id))


def _delete(transaction: Transaction, id: str) -> None:
    with suppress(RecordNotFound), transaction.savepoint():  # another process was first
        transaction.delete(USES.name, id)


def _find(transaction: Transaction, id: str) -> Use | None:
    try:
        return _read(transaction.read(USES.name, id).body)
    except RecordNotFound:
        return None


def _put(transaction: Transaction, use: Use, before: Use | None) -> None:
    (transaction.update if before else transaction.insert)(USES.name, use.record())


def _read(body: bytes) -> Use:
    return Use(*exactjson.loads(body)["use"])
