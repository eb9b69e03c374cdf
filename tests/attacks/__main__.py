"""Run all attacks, or those whose names contain one of the arguments; with `--store postgresql` on PostgreSQL."""

import argparse
import pkgutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import tests.attacks
from tests import stores
from tests.postgresql_server import Databases, PostgresServer
from tests.postgresql_stores import PostgresStores

# They are about SQLite's file, its log and its lock, or measure the file.
OF_SQLITE = (
    "commands.",
    "items.attack_old_items",
    "store.",
)


class Chosen(PostgresStores):
    """The databases of the attacks, on a server of their own."""

    def __init__(self, databases: Databases, user: ExitStack) -> None:
        self._databases = databases
        self._users, self._of_files = [user], {}


def attacks() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """All attacks with their names."""
    for module in sorted(found.name for found in pkgutil.iter_modules(tests.attacks.__path__)):
        if module not in ("__main__", "health"):
            functions = vars(import_module(f"tests.attacks.{module}")).items()
            yield from ((f"{module}.{name}", each) for name, each in functions if name.startswith("attack_"))


def main(names: list[str], store: str) -> None:
    """Run the attacks one after the other; exit with the names of those that failed, if any."""
    chosen = [(name, attack) for name, attack in attacks() if not names or any(word in name for word in names)]
    if not chosen:
        sys.exit(f"no attack is called so: {' '.join(names)}")
    if store == "sqlite":
        failed = run_all(chosen)
    else:
        with PostgresServer() as server, ExitStack() as user:
            stores.choose(Chosen(server, user))
            failed = run_all([each for each in chosen if not each[0].startswith(OF_SQLITE)])
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run_all(chosen: list[tuple[str, Callable[[Path], str]]]) -> list[str]:
    """Run attacks; returns the names of those that failed."""
    failed = []
    for name, attack in chosen:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            try:
                outcome = attack(Path(folder))
            except Exception:
                failed.append(name)
                outcome = f"FAILED\n{traceback.format_exc()}"
            print(f"{name}: {outcome} ({time.perf_counter() - began:.0f} s)", flush=True)
    return failed


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.attacks")
    options.add_argument("names", nargs="*")
    options.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    arguments = options.parse_args()
    main(arguments.names, arguments.store)
