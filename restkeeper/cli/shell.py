"""`restkeeper shell`: a Python shell with the service."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import click
from flask import Flask, current_app
from flask.cli import shell_command, with_appcontext

from restkeeper.cli.common import Command
from restkeeper.resources.functions import Items, call
from restkeeper.service import Service, service_of
from restkeeper.storage.base import Transaction

METHODS = ("read", "find", "count", "create", "change", "delete")  # of Items


class ShellItems:
    """The items of all collections, as `Items` has them, but each call is a transaction of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __dir__(self) -> list[str]:
        return [*METHODS]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in METHODS:
            raise AttributeError(f"items has no {name}; it has {', '.join(METHODS)}")
        method = getattr(Items, name)

        @wraps(method)
        def called(*arguments: Any, **options: Any) -> Any:
            def work(transaction: Transaction) -> Any:
                items: Items = self._service.hooks.items(transaction)
                return call(items, partial(method, items, *arguments, **options))

            return self._service.store.write(work)

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
    click.echo(f"items ({', '.join(METHODS)}), app, client; {service_of(current_app).location.name}", err=True)
    context.invoke(shell_command)
