"""`restkeeper shell` and `restkeeper run`: Python with the service, and a script of it."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, update_wrapper
from pathlib import Path
from traceback import format_exception
from typing import Any

import click
from flask import Flask, current_app
from flask.cli import shell_command, with_appcontext

from restkeeper.command import Command, Refused, service_of_app
from restkeeper.mistakes import own_traceback
from restkeeper.resources.call import PROGRAM
from restkeeper.resources.functions import Items, current_items, invoke
from restkeeper.service import Service, service_of
from restkeeper.web.auth import CALLER

METHODS = ("read", "find", "count", "groups", "create", "upsert", "change", "delete")  # of Items


class ShellItems:
    """The items of all collections, as `Items` has them; each call is a transaction, or all of a function are one."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __dir__(self) -> list[str]:
        return [*METHODS, "transaction"]

    def transaction(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What `function(items, …)` returns: it stores all changes by these `items` or, if it raises, none."""

        def work(items: Items) -> Any:
            return invoke(items, partial(function, items, *arguments, **options))

        if inside := current_items.get():  # a function of this transaction calls it
            return work(inside)
        return self._service.write(lambda unit: work(unit.items))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in METHODS:
            raise AttributeError(f"items has no {name}; it has {', '.join(METHODS)}")
        method = getattr(Items, name)
        return update_wrapper(partial(self.transaction, method), method)


def names_of(app: Flask) -> dict[str, Any]:
    """What a shell has besides `app`, that of `flask shell` too."""
    return {"items": ShellItems(service_of(app)), "client": app.test_client()}


def _request_of_program(app: Flask) -> AbstractContextManager[object]:
    """A request of a program, which sees everything: in it `find_items` and `shown` work as in a view."""
    return app.test_request_context(environ_overrides={CALLER: PROGRAM})


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
    with _request_of_program(current_app):
        context.invoke(shell_command)


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@with_appcontext
def run(script: str, arguments: tuple[str, ...]) -> None:
    """Run a Python script with `items`, `app` and `client`, as the shell has them.

    Each call of `items` is a transaction; `items.transaction(function)` calls function(items) in one. An error ends the
    script with its traceback and exit code 1; the arguments are in sys.argv.
    """
    service = service_of_app(creates=True)
    service.store.open()
    sys.argv[:] = [script, *arguments]
    names = names_of(current_app) | {"app": current_app, "__name__": "__main__", "__file__": script}
    try:
        with _request_of_program(current_app):
            exec(compile(Path(script).read_bytes(), script, "exec"), names)  # noqa: S102 - the operator's own program
    except Exception as error:
        whole = service.config.log_level == "debug"
        click.echo("".join(format_exception(error)).rstrip() if whole else own_traceback(error), err=True)
        sys.exit(1)
