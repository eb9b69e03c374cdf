"""Make random small faults in the code, one at a time, and see whether the tests find each: `make mutants`.

Each fault is made in a copy of the tree, never in the checkout. First the tests of its module are run, as NEAR names
them, and if they find nothing the whole suite. A survivor that changes nothing, or nothing important, is listed with
the reason in `tests/harmless.txt`, as `path: what: reason`; it is not tried.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from tests.live import ROOT
from tests.mutations import Mutation, mutations

SECONDS = 1800  # after which a hanging run of tests counts as having found the fault
NEAR = {  # the tests of a module, by the prefix of its path; the first one that fits counts
    "restkeeper/server/connection": "test_connection test_worker",
    "restkeeper/server/worker": "test_connection test_worker test_edge",
    "restkeeper/server": "test_process test_security test_running",
    "restkeeper/cli/contract": "test_contract",
    "restkeeper/cli": "test_cli test_new test_importing test_exporting test_no_store test_restore test_procfile",
    "restkeeper/contract": "test_contract*",
    "restkeeper/config": "test_config test_security",
    "restkeeper/features/batch": "test_batch",
    "restkeeper/features/cors": "test_cors",
    "restkeeper/features/dialects": "test_dialects",
    "restkeeper/features/browse": "test_browse",
    "restkeeper/features/events": "test_events test_openapi test_shapes",
    "restkeeper/features/harness": "test_harness test_harness_bounds test_harness_servers",
    "restkeeper/features/health": "test_health test_features",
    "restkeeper/features/idempotency": "test_idempotency",
    "restkeeper/features/jwt": "test_tokens test_jwks",
    "restkeeper/features/keys": "test_auth test_permissions test_revocation",
    "restkeeper/features/limits": "test_limits test_limits_shared test_failures",
    "restkeeper/features/metrics": "test_running test_features test_security",
    "restkeeper/features/openapi": "test_openapi test_declarations",
    "restkeeper/features/ownership": "test_permissions",
    "restkeeper/features/pages": "test_docs_page test_problems",
    "restkeeper/features/versions": "test_versions test_steps test_deprecation test_upgrading",
    "restkeeper/features/webhooks": "test_attempts test_deliverer test_webhooks test_sender",
    "restkeeper/resources/evolution": "test_steps test_stored test_rolling",
    "restkeeper/resources/re": "test_references test_declarations test_items test_shapes test_sizes test_rolling",
    "restkeeper/resources/unit": "test_actions test_batch test_references",
    "restkeeper/resources/embedding": "test_embedding",
    "restkeeper/resources": "test_items test_lists test_changes test_actions test_shapes test_pre* test_upgrading",
    "restkeeper/schemas": "test_fields test_ids test_schemas test_validation test_openapi",
    "restkeeper/storage/location": "test_copying",
    "restkeeper/storage/postgresql": "store_suite/test_* postgresql/test_*",
    "restkeeper/storage/shares": "test_shares",
    "restkeeper/storage": "store_suite/test_* sqlite/test_* test_opening test_health",
    "restkeeper/web/client": "test_sender test_jwks",
    "restkeeper/web/p": "test_pages test_lists test_preconditions",
    "restkeeper/web/queries": "test_queries test_lists test_sizes",
    "restkeeper/web/edge": "test_edge test_mounted test_proxies test_security",
    "restkeeper/web/errors": "test_problems test_edge test_shapes",
    "restkeeper/web": "test_edge test_problems test_validation test_sizes test_routes test_auth test_lists",
    "restkeeper/app": "test_process test_features test_service test_mistakes",
    "restkeeper/clock": "test_clocks test_service test_items",
    "restkeeper/errors": "test_problems test_preconditions",
    "restkeeper/mistakes": "test_mistakes",
    "restkeeper/net": "test_addresses test_config",
    "restkeeper/parsing": "test_config test_lists test_sizes",
    "restkeeper/pytest_plugin": "test_live_server test_harness_servers",
    "restkeeper/service": "test_service test_features test_durability",
    "restkeeper/testing": "test_live_server test_harness_servers",
    "restkeeper/versions": "test_versions test_deprecation test_upgrading",
    "deploy": "test_deployment",
    "docs": "test_house test_config",
    "schemas": "test_openapi test_items",
    "resources": "test_openapi test_items test_lists",
    "versions": "test_versions test_openapi",
    "": "test_process test_features test_items",
}
LEFT = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", ".coverage*", "*.db*", "build")


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the tree, with this environment."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(shutil.copytree(ROOT, Path(folder, "tree"), ignore=shutil.ignore_patterns(*LEFT)))
        if (ROOT / ".venv").exists():
            (tree / ".venv").symlink_to((ROOT / ".venv").resolve())
        yield tree


def near(path: str) -> list[str]:
    """The files of the tests of a module."""
    patterns = next(names for begin, names in NEAR.items() if path.startswith(begin)).split()
    return sorted(str(file.relative_to(ROOT)) for each in patterns for file in ROOT.glob(f"tests/{each}.py"))


def failure(tree: Path, *tests: str) -> str:
    """The test that fails, of these files or of all if none are given; empty if none fails."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "matrix or not matrix" if tests else "not matrix"]
    command = [sys.executable, "-B", "-m", "pytest", *options, f"--basetemp={tree.with_suffix('.temp')}", *tests]
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - |$)", done.stdout, re.MULTILINE)
    return failed[1] if failed else f"exit status {done.returncode}" * bool(done.returncode)


def judge(mutation: Mutation, whole: bool) -> bool:
    """Whether the tests find a mutation, which is made in a copy of the tree."""
    with copied_tree() as tree:
        module = tree / mutation.path
        module.write_bytes(mutation.apply(module.read_bytes()))
        by = failure(tree, *near(mutation.path)) or (failure(tree) if whole else "")
    print(f"{'FOUND   ' if by else 'SURVIVED'} {mutation.path}:{mutation.line} {mutation.what} {by}", flush=True)
    return bool(by)


def choose(count: int, seed: int, only: str) -> list[Mutation]:
    """Choose this number of mutations at random, first one of each module, so that every module is tested.

    The rank of a mutation depends on its own text only: a change to one module does not change the choice in others.
    """
    harmless = (ROOT / "tests" / "harmless.txt").read_text().splitlines()
    paths = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("**/*.py"))
    outside = ("tests/", "bench/", "build/", "examples/", ".")
    modules = [mutations(ROOT, path) for path in paths if path.startswith(only) and not path.startswith(outside)]

    def rank(mutation: Mutation) -> bytes:
        return blake2b(f"{seed} {mutation.path} {mutation.what} {mutation.new}".encode(), digest_size=8).digest()

    first = [min(module, key=rank) for module in modules if module]
    others = [each for module in modules for each in module if each not in first]
    ranked = [*sorted(first, key=rank), *sorted(others, key=rank)]
    known = [each for each in ranked if any(line.startswith(f"{each.path}: {each.what}: ") for line in harmless)]
    return [each for each in ranked if each not in known][:count]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.mutate")
    options.add_argument("--count", type=int, default=300, help="mutations in all")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2, help="mutations at a time")
    options.add_argument("--only", default="", help="mutations of modules whose path begins so")
    options.add_argument("--near", action="store_true", help="do not run the whole suite for a survivor")
    arguments = options.parse_args()
    chosen = choose(arguments.count, arguments.seed, arguments.only)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = sum(pool.map(lambda each: judge(each, not arguments.near), chosen))
    print(f"{len(chosen)} mutations, {len(chosen) - found} survived, {100 * found / max(1, len(chosen)):.1f} % found")


if __name__ == "__main__":
    main()
