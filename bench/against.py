"""This checkout beside another one, both as deployed: with a key, limits, a log and full durability.

The goals against 218cb86, on SQLite: one item 1.1, page of 20 at random 1.1, page of 100 again 0.95, mixed load 1.03,
create 1.0. That commit had the item that was read last, and the key, in memory: one that is not in it costs a statement
on both sides. A server is up to 3 % faster or slower from one start to the next, so both are started several times.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.database import Server
from bench.scenario import HEADINGS, is_chosen, line
from bench.sides import PRODUCT, SETTINGS, Found, Side, changes, creates, mixed, new_key, shuffled, take_turns
from restkeeper.clock import uuid7
from tests.live import ROOT, Gunicorn

ITEMS = 10_000
PAGES = 1_000  # where pages at random begin
CONNECTIONS = 16
STARTS = 5


def compare_with(
    other: str, folder: Path, rounds: int, seconds: float, only: Sequence[str], database: Server | None = None
) -> None:
    """Print the ratios of this checkout to `other`: a folder, or a commit of this repository.

    They are on SQLite, or each on databases of its own on PostgreSQL.
    """
    then = Path(other).resolve() if Path(other).is_dir() else _checkout(other, folder / "checkout")
    ids = [uuid7() for _ in range(ITEMS)]
    items = folder / "items.ndjson"
    items.write_text("".join(json.dumps({**PRODUCT, "id": id}) + "\n" for id in ids))
    print(f"ours: {ROOT}\nthen: {then} ({other})\n")
    print(HEADINGS)
    results: dict[str, list[tuple[Found, ...]]] = {}
    for number in range(STARTS):
        with ExitStack() as stack:
            ours = _sides(stack, folder / f"ours{number}", ROOT, items, ids, database)
            theirs = _sides(stack, folder / f"then{number}", then, items, ids, database)
            for name, side in ours.items():
                if is_chosen(name, only):
                    results.setdefault(name, []).extend(take_turns((side, theirs[name]), CONNECTIONS, rounds, seconds))
    for name, found in results.items():
        print(line(name, *zip(*found, strict=True)), flush=True)


def _checkout(commit: str, folder: Path) -> Path:
    """The files of a commit, in `folder`."""
    archive = folder.with_suffix(".tar")
    subprocess.run(["git", "archive", "--output", archive, commit], cwd=ROOT, check=True)  # noqa: S603, S607
    shutil.unpack_archive(archive, folder, filter="data")
    return folder


def _sides(
    stack: ExitStack, folder: Path, root: Path, items: Path, ids: list[str], database: Server | None
) -> dict[str, Side]:
    """The requests to a checkout, by scenario, on a store that its own code creates and fills."""
    folder.mkdir()
    url = database.create(folder.name) if database else f"sqlite:///{folder}/restkeeper.db"
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": url}
    command = [sys.executable, "-m", "flask", "import", "products", str(items)]
    subprocess.run(command, cwd=root, env=environ, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    server = stack.enter_context(Gunicorn(folder, root=root, app="", DATABASE_URL=url, **SETTINGS))
    key = new_key(server)
    return {
        "one item": Side(server, shuffled(key, f"/products/{ids[ITEMS // 2]}")),
        "one item at random": Side(server, shuffled(key, *(f"/products/{id}" for id in ids))),
        "page of 20 again": Side(server, shuffled(key, "/products")),
        "page of 20 at random": Side(server, shuffled(key, *(f"/products?offset={number}" for number in range(PAGES)))),
        "page of 100 again": Side(server, shuffled(key, "/products?limit=100")),
        "create": Side(server, creates(key)),
        "PATCH": Side(server, changes("PATCH", ids, key)),
        "PUT": Side(server, changes("PUT", ids, key)),
        "mixed load": Side(server, mixed(shuffled(key, *(f"/products/{id}" for id in ids)), creates(key))),
    }
