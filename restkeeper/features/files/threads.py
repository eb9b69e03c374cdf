"""Work that blocks, such as reading a large file or hashing a password: in a thread, so that requests continue."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from gevent import get_hub, monkey

T = TypeVar("T")


def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """The result of work that blocks: in a thread if gevent runs the requests of this process."""
    if not monkey.is_module_patched("threading"):
        return work(*arguments)
    outcome = get_hub().threadpool.apply(_result_or_error, (work, arguments))
    if isinstance(outcome, Exception):
        raise outcome
    return cast(T, outcome)


def _result_or_error(work: Callable[..., T], arguments: tuple[Any, ...]) -> T | Exception:
    """The result of work, or its exception: gevent would print a traceback of an exception in a thread."""
    try:
        return work(*arguments)
    except Exception as error:
        return error
