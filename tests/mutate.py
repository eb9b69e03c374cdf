"""Make random small faults in the code, one at a time, and see whether the tests find each: `make mutants`.

Each fault is made in a copy of the tree, never in the checkout. First the tests that ran the changed line are run, the
fastest first, and those that `NEAR` names for code that runs in other processes. If they find nothing, the whole suite
is run, without its slowest tests unless `--slow` is given.

The lines that each test runs are recorded once in FOLDER (`--collect` records them again). `results.jsonl` in that
folder grows: a run that was stopped continues there. A survivor that changes nothing, or nothing important, is listed
with the reason in `tests/harmless.txt`, as `path: what: reason`; it is not tried again.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from xml.etree import ElementTree

from coverage import CoverageData

from tests.live import ROOT
from tests.mutations import Mutation, mutations

FOLDER = Path(tempfile.gettempdir(), "restkeeper-mutants")
FIRST_SECONDS = 40.0  # of tests, as recorded, that ran the line
SLOW_SECONDS = 14.0  # tests that take longer are the slowest ones
SECONDS = 1800  # after which a hanging run of tests counts as having found the fault
NEAR = {  # tests of code that runs in other processes, by the prefix of its path
    "restkeeper/server/worker": ("test_worker*", "test_edge", "test_events_running"),
    "restkeeper/server/connection": ("test_worker*", "test_connection", "test_edge"),
    "restkeeper/web/application": ("test_edge",),
    "restkeeper/web/client": ("test_sender", "test_jwks_url"),
    "restkeeper/web/observe": ("test_running",),
    "restkeeper/features/openapi/": ("test_openapi",),
    "restkeeper/features/events/types": ("test_openapi",),
    "restkeeper/features/webhooks/__init__": ("test_openapi",),
    "restkeeper/web/operations": ("test_openapi",),
    "restkeeper/schemas/": ("test_openapi",),
    "restkeeper/app": ("test_smoke", "test_process"),
    "restkeeper/server/settings": ("test_smoke", "test_process", "test_security", "test_running", "test_delivering"),
    "restkeeper/features/webhooks/": ("test_deliver*", "test_sender", "test_attempts"),
    "restkeeper/cli/": (
        "test_cli*",
        "test_no_store",
        "test_delivering",
        "test_exporting",
        "test_importing",
        "test_restore",
    ),
    "restkeeper/features/limits/counters": ("test_limits_shared", "test_limits_running"),
    "restkeeper/storage/": ("store_suite/test_*", "sqlite/test_*"),
}
LEFT = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", ".coverage*", "*.db*", "build")


class Recorded:
    """The tests that ran each line, and how long each test took."""

    def __init__(self, folder: Path) -> None:
        self._tree = folder / "recorded"
        report, coverage = folder / "times.xml", folder / "coverage"
        if not report.exists():
            options = ["-n", "3", "--dist", "worksteal", "--cov", "--cov-context=test", "--cov-report="]
            command = [*pytest(*options), f"--junitxml={report}.partial", "-o", "junit_family=xunit1"]
            environ = {**os.environ, "COVERAGE_FILE": str(coverage)}
            subprocess.run(command, cwd=copy(self._tree), env=environ, check=True)
            Path(f"{report}.partial").rename(report)
        self._data = CoverageData(str(coverage))
        self._data.read()
        self._seconds = dict(_times(ElementTree.parse(report)))  # noqa: S314 - our own

    def tests_of(self, mutation: Mutation) -> list[str]:
        """The tests to run first."""
        lines = self._data.contexts_by_lineno(str(self._tree / mutation.path))
        ran = _names(lines.get(mutation.line, ())) if self._is_recorded(mutation.path) else set()
        if not ran:  # it runs at import or in another process, or the module has changed since
            ran = {test for contexts in lines.values() for test in _names(contexts)}
        chosen, total = [], 0.0
        for test in sorted(ran & self._seconds.keys(), key=lambda test: (self._seconds[test], test)):
            total += self._seconds[test]
            if total > FIRST_SECONDS:
                break
            chosen.append(test)
        near = [name for begin, names in NEAR.items() if mutation.path.startswith(begin) for name in names]
        return chosen + [str(file.relative_to(ROOT)) for name in near for file in ROOT.glob(f"tests/{name}.py")]

    def slowest(self) -> list[str]:
        return [test for test, seconds in self._seconds.items() if seconds > SLOW_SECONDS]

    def _is_recorded(self, path: str) -> bool:
        recorded = self._tree / path
        return recorded.exists() and recorded.read_bytes() == (ROOT / path).read_bytes()


def _names(contexts: Iterable[str]) -> set[str]:
    """The tests of coverage's contexts, which are "test|run" and similar."""
    return {context.partition("|")[0] for context in contexts} - {""}


def _times(report: "ElementTree.ElementTree[Any]") -> Iterator[tuple[str, float]]:
    for case in report.iter("testcase"):
        file, name = case.get("file", ""), case.get("name", "")
        inner = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
        yield "::".join(part for part in (file, inner.replace(".", "::"), name) if part), float(case.get("time", 0))


def copy(target: Path) -> Path:
    """A new copy of the tree, with this environment."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*LEFT))
    if (ROOT / ".venv").exists():
        (target / ".venv").symlink_to((ROOT / ".venv").resolve())
    return target


def pytest(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]


def failure(tree: Path, *options: str, tests: list[str]) -> str | None:
    """The test that fails, of these or of all if none are given; "" if none fails, None if some do not exist."""
    arguments, output = tree.with_suffix(".tests"), tree.with_suffix(".output")
    arguments.write_text("\n".join(tests))
    command = pytest("-x", f"--basetemp={tree.with_suffix('.temp')}", *options, *([f"@{arguments}"] if tests else []))
    with output.open("w") as file:
        run = subprocess.Popen(command, cwd=tree, stdout=file, stderr=file)
    try:
        code = run.wait(SECONDS)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)  # the servers that tests have started must end, too
        try:
            run.wait(60)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
        return "no end"
    if code == 0:
        return ""
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/.*?)(?: - |$)", output.read_text(errors="replace"), re.MULTILINE)
    return None if code == 4 and tests else failed[0] if failed else f"exit status {code}"


def judge(mutation: Mutation, tree: Path, recorded: Recorded, whole: bool, slow: bool) -> dict[str, object]:
    """The result of one mutation, which is made in a copy of the tree and undone."""
    left = [] if slow else [option for test in recorded.slowest() for option in ("--deselect", test)]
    module = tree / mutation.path
    source = module.read_bytes()
    began = time.monotonic()
    try:
        _write(module, mutation.apply(source))
        tests = recorded.tests_of(mutation)
        by = failure(tree, tests=tests) if tests else None
        if by is None or (not by and whole):
            by = failure(tree, "-n", "2", *left, tests=[])
    finally:
        _write(module, source)
    return {"found": bool(by), "by": by, "seconds": round(time.monotonic() - began, 1)}


def _write(module: Path, source: bytes) -> None:
    module.write_bytes(source)
    for compiled in module.parent.glob(f"__pycache__/{module.stem}.*"):  # may have the same second and size
        compiled.unlink()


def choose(count: int, seed: int) -> list[Mutation]:
    """Choose this number of mutations at random, first one of each module, so that every module is tested.

    The rank of a mutation depends on its own text only: a change to one module does not change the choice in others.
    """
    paths = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("**/*.py"))
    outside = ("tests/", "bench/", "build/", ".")
    modules = [found for path in paths if not path.startswith(outside) and (found := mutations(ROOT, path))]

    def rank(mutation: Mutation) -> bytes:
        return blake2b(f"{seed} {mutation.path} {mutation.what} {mutation.new}".encode(), digest_size=8).digest()

    first = [min(module, key=rank) for module in modules]
    others = [each for module in modules for each in module if each not in first]
    return [*sorted(first, key=rank), *sorted(others, key=rank)][:count]


def identity(mutation: Mutation) -> str:
    """The id of a mutation; it does not change when other mutations do."""
    source = (ROOT / mutation.path).read_bytes()
    return blake2b(f"{mutation}".encode() + source, digest_size=8).hexdigest()


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.mutate")
    options.add_argument("--count", type=int, default=300, help="mutations in all")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2, help="mutations at a time")
    options.add_argument("--now", type=int, default=sys.maxsize, help="mutations to try in this run")
    options.add_argument("--only", default="", help="mutations of modules whose path begins so")
    options.add_argument("--again", action="store_true", help="try those that survived again")
    options.add_argument("--near", action="store_true", help="do not run the whole suite for a survivor")
    options.add_argument("--slow", action="store_true", help="run the slowest tests, too")
    options.add_argument("--collect", action="store_true", help="record again which tests run which lines")
    options.add_argument("--folder", type=Path, default=FOLDER)
    arguments = options.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    if arguments.collect:
        (arguments.folder / "times.xml").unlink(missing_ok=True)
    results = arguments.folder / "results.jsonl"
    known = {each["id"]: each for each in map(json.loads, results.read_text().splitlines())} if results.exists() else {}
    chosen = [each for each in choose(arguments.count, arguments.seed) if each.path.startswith(arguments.only)]
    ids = {identity(mutation): mutation for mutation in chosen}
    excused = harmless()
    for id, mutation in ids.items():
        if reason_of(mutation.path, mutation.what, excused):
            known[id] = {"id": id, **mutation._asdict(), "found": False, "by": "", "seconds": 0.0}
    open_ones = [
        id
        for id, mutation in ids.items()
        if id not in known
        or (arguments.again and not known[id]["found"] and not reason_of(mutation.path, mutation.what, excused))
    ]
    recorded = Recorded(arguments.folder)
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(arguments.jobs):
        trees.put(copy(arguments.folder / f"tree{number}"))

    def one(id: str) -> None:
        tree = trees.get()
        mutation = ids[id]
        known[id] = {
            "id": id,
            **mutation._asdict(),
            **judge(mutation, tree, recorded, not arguments.near, arguments.slow),
        }
        with results.open("a") as file:
            file.write(json.dumps(known[id]) + "\n")
        _print(known[id])
        trees.put(tree)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, open_ones[: arguments.now]))
    score([known[id] for id in ids if id in known], excused)


def _print(result: dict[str, Any]) -> None:
    outcome = "FOUND   " if result["found"] else "SURVIVED"
    end = f"({result['seconds']:.0f} s) {result['by']}"
    print(f"{outcome} {result['path']}:{result['line']} {result['what']} {end}", flush=True)


def harmless() -> list[str]:
    """The lines of the file of mutations that change nothing, or nothing important."""
    return (ROOT / "tests" / "harmless.txt").read_text().splitlines()


def reason_of(path: str, what: str, excused: list[str]) -> str:
    """Why a mutation is harmless, if it is."""
    begin = f"{path}: {what}: "
    return next((line.removeprefix(begin) for line in excused if line.startswith(begin)), "")


def score(results: list[dict[str, Any]], excused: list[str]) -> None:
    """Print the survivors and the share of mutations that was found."""
    survived = [result for result in results if not result["found"]]
    print("\nSurvivors:" if survived else "\nNo survivors.")
    listed = 0
    for result in survived:
        reason = reason_of(result["path"], result["what"], excused)
        listed += bool(reason)
        print(
            f"  {result['path']}:{result['line']} {result['what']}" + (f"\n      harmless: {reason}" if reason else "")
        )
    share = 100 * (1 - len(survived) / max(1, len(results)))
    print(f"{len(results)} mutations, {len(survived)} survived, {share:.1f} % found; {listed} survivors are harmless")


if __name__ == "__main__":
    main()
