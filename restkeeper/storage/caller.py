"""The caller on whose behalf the store is used: a store that is shared by many gives each a share."""

from contextvars import ContextVar

_caller: ContextVar[str] = ContextVar("restkeeper.caller", default="")


def worked_for() -> str:
    """The caller of the present work; empty for the service's own."""
    return _caller.get()


def work_for(name: str) -> None:
    """Set the caller for the rest of this context, which is a request's."""
    _caller.set(name)
