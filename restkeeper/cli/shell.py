"""`restkeeper shell` and `restkeeper run`: Python with the service, and a script of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial, wraps
from pathlib import Path
from traceback import format_exception
from typing import Any, Self

import click
from flask import Flask, current_app
from flask.cli import shell_command, with_appcontext
from greenlet import getcurrent, greenlet

from restkeeper.cli.common import Command, Refused, service_of_app
from restkeeper.mistakes import own_traceback
from restkeeper.resources.call import of_program
from restkeeper.resources.changes import Unit
from restkeeper.resources.functions import Items, invoke
from restkeeper.service import Service, service_of
from restkeeper.storage.base import Transaction

METHODS = ("read", "find", "count", "create", "change", "delete")  # of Items


class ShellItems:
    """The items of all collections, as `Items` has them; each call is a transaction, or all in a `transaction` one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: Items | None = None

    def __dir__(self) -> list[str]:
        return [*METHODS, "transaction"]

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Let all calls in the block be one transaction: it stores all of their changes or, if it raises, none.

        The store calls a function for a transaction; here that waits in a greenlet for the end of the block.
        """
        if self._open:
            raise RuntimeError("items.transaction: this is in one already")
        block = getcurrent()

        def work(transaction: Transaction) -> None:
            self._open = items = Unit(self._service.hooks, transaction, of_program()).items
            block.switch()  # raises what the block raises
            if items.failure:  # which the block has caught
                raise items.failure

        writer = greenlet(self._service.store.write)
        writer.gr_context = copy_context()
        try:
            writer.switch(work)
            try:
                yield self
            except BaseException as error:
                writer.throw(error)
                raise
            writer.switch()
        finally:
            self._open = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in METHODS:
            raise AttributeError(f"items has no {name}; it has {', '.join(METHODS)}")
        method = getattr(Items, name)

        @wraps(method)
        def called(*arguments: Any, **options: Any) -> Any:
            def work(items: Items) -> Any:
                return invoke(items, partial(method, items, *arguments, **options))

            if self._open:
                return work(self._open)
            return self._service.write(lambda unit: work(unit.items))

        return called


def names_of(app: Flask) -> dict[str, Any]:
    """What a shell has besides `app`, that of `flask shell` too."""
    return {"items": ShellItems(service_of(app)), "client": app.test_client()}


@click.command(cls=Command)
@click.pass_context
@with_appcontext
def shell(context: click.Context) -> None:
    """Open a Python shell with `items`, `app` and `client`.

    Each call, such as items.find("products", {"status": "active"}), is a transaction. Whose an item is makes no
    difference there; `client` sends requests as tests do.
    """
    if not sys.stdin.isatty():  # it would go on after an error, and end with 0
        raise Refused(
            "standard input is no terminal: use `restkeeper run SCRIPT`, or for this `restkeeper run /dev/stdin`"
        )
    click.echo(f"items ({', '.join(METHODS)}), app, client; {service_of(current_app).location.name}", err=True)
    context.invoke(shell_command)


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@with_appcontext
def run(script: str, arguments: tuple[str, ...]) -> None:
    """Run a Python script with `items`, `app` and `client`, as the shell has them.

    Each call of `items` is a transaction, and so are all calls of a block, `with items.transaction():`. An error ends
    the script with its traceback and exit code 1; the arguments are in sys.argv.
    """
    service = service_of_app(creates=True)
    service.store.open()
    sys.argv[:] = [script, *arguments]
    names = names_of(current_app) | {"app": current_app, "__name__": "__main__", "__file__": script}
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), names)  # noqa: S102 - the operator's own program
    except Exception as error:
        whole = service.config.log_level == "debug"
        click.echo("".join(format_exception(error)).rstrip() if whole else own_traceback(error), err=True)
        sys.exit(1)
