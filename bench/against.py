"""This checkout beside another one, both as deployed: with a key, limits, a log and full durability.

A server is up to 3 % faster or slower from one start to the next, so both are started several times.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from bench.database import Server
from bench.sides import PRODUCT, Found, Side, changes, creates, get, mixed, take_turns, with_field
from restkeeper.clock import uuid7
from tests.live import ROOT, Gunicorn

ITEMS = 10_000
CONNECTIONS = 16
STARTS = 5
ADMIN_KEY = "an-admin-key-of-enough-characters"
SCOPES = ["products:read", "products:write"]


def compare_with(
    other: str, folder: Path, rounds: int, seconds: float, only: str, database: Server | None = None
) -> None:
    """Print the ratios of this checkout to `other`: a folder, or a commit of this repository.

    They are on SQLite, or each on databases of its own on PostgreSQL.
    """
    then = Path(other).resolve() if Path(other).is_dir() else _checkout(other, folder / "checkout")
    ids = [uuid7() for _ in range(ITEMS)]
    items = folder / "items.ndjson"
    items.write_text("".join(json.dumps({**PRODUCT, "id": id}) + "\n" for id in ids))
    print(f"ours: {ROOT}\nthen: {then} ({other})\n")
    print(f"{'':<14} {'ratio':>6}  {'per CPU':>7}  {'ours/s':>8} {'then/s':>8}   p99 of the reads, ms: ours, then")
    results: dict[str, list[tuple[Found, ...]]] = {}
    for number in range(STARTS):
        with ExitStack() as stack:
            ours = _sides(stack, folder / f"ours{number}", ROOT, items, ids, database)
            theirs = _sides(stack, folder / f"then{number}", then, items, ids, database)
            for name, side in ours.items():
                if only in name:
                    results.setdefault(name, []).extend(take_turns((side, theirs[name]), CONNECTIONS, rounds, seconds))
    for name, found in results.items():
        _print(name, found)


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
    settings = {"AUTH": "required", "ADMIN_KEY": ADMIN_KEY, "RATE_LIMIT": "999999999 per day", "LOG_FORMAT": "json"}
    settings["DATABASE_URL"] = url
    server = stack.enter_context(Gunicorn(folder, root=root, app="", **settings))
    made = server.post("/api/v1/keys", {"name": "bench", "scopes": SCOPES}, {"X-API-Key": ADMIN_KEY})
    key = f"Authorization: Bearer {made.json()['secret']}"

    def reads(*paths: str) -> tuple[bytes, ...]:
        return tuple(with_field(request, key) for request in get(*paths))

    return {
        "one item": Side(server, reads(f"/products/{ids[ITEMS // 2]}")),
        "page of 20": Side(server, reads("/products")),
        "create": Side(server, creates(key)),
        "PATCH": Side(server, changes("PATCH", ids, key)),
        "PUT": Side(server, changes("PUT", ids, key)),
        "mixed load": Side(server, mixed(reads(*(f"/products/{id}" for id in ids)), creates(key))),
    }


def _print(name: str, results: list[tuple[Found, ...]]) -> None:
    ours, then = zip(*results, strict=True)
    ratio = statistics.median(a.load.rate / b.load.rate for a, b in results)
    per_cpu = statistics.median(a.per_cpu / b.per_cpu for a, b in results)
    rates = [statistics.median(each.load.rate for each in side) for side in (ours, then)]
    late = [statistics.median(each.load.reads_p99 for each in side) for side in (ours, then)]
    waits = "" if name in ("create", "PATCH", "PUT") else f"   {late[0]:.1f}, {late[1]:.1f}"
    print(f"{name:<14} {ratio:6.2f}  {per_cpu:7.2f}  {rates[0]:8.0f} {rates[1]:8.0f}{waits}", flush=True)
