"""The service and its OpenAPI document agree, whatever is sent: Schemathesis with every check, phase and mode on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.callers import ADMIN_KEY
from tests.live import ROOT, Gunicorn

TOKEN = "a-token-for-who-scrapes-me"  # noqa: S105
EXAMPLES = 5  # of each operation and mode while fuzzing; the coverage phase makes some hundred requests of each besides
LISTS = "^list_(users|tags|notes)$"  # left out: they take most of the time, and other lists have the same parameters


@pytest.mark.parametrize(
    ("app", "paths", "auth"),
    [
        pytest.param("shop", "^/users", "open", id="users"),
        pytest.param("shop.reports", "^/reports/(stock|counts|raw)", "required", id="own", marks=pytest.mark.matrix),
        pytest.param("shop.shapes", "^/(settings|company)", "required", id="shapes", marks=pytest.mark.matrix),
        pytest.param("shop.tags", "^/(tags|notes)(/.id.)?$", "required", id="client", marks=pytest.mark.matrix),
        pytest.param("shop.posts", "^/posts(/.id.(/copy)?)?$", "open", id="integer", marks=pytest.mark.matrix),
        # What is at /users and /api/v1/users is one handler, and so are the products.
        pytest.param("shop", "^/(?!api/v1/|products)", "open", id="current", marks=pytest.mark.matrix),
        pytest.param("shop", "^/api/v1/(?!users)", "required", id="v1", marks=pytest.mark.matrix),
    ],
)
def test_responses_match_the_document(tmp_path: Path, app: str, paths: str, auth: str) -> None:
    """No response, to a valid request or not, differs from the document. `make soak` looks further, by another seed."""
    seed = os.environ.get("SCHEMATHESIS_SEED", "1")
    settings = {
        "AUTH": auth,
        "ADMIN_KEY": ADMIN_KEY,
        "METRICS_TOKEN": TOKEN,
        "RATE_LIMIT": "999999999 per day",
        "TRUSTED_HOSTS": "127.0.0.1",
    }
    options = {"app": f"tests.{app}:create_app()", "bounds": {"failure_limit": "off"}}
    with Gunicorn(tmp_path, LOG_LEVEL="warning", **options, **settings) as server:  # type: ignore[arg-type]
        run = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"),
                *(f"{server.base}/openapi.json", "--include-path-regex", paths),
                *(("--exclude-operation-id-regex", LISTS) if app in ("shop", "shop.tags") else ()),
                *(() if app == "shop" else ("--phases", "coverage,fuzzing")),  # the others need links
                *("--seed", seed, "--max-examples", str(EXAMPLES), "--no-color"),
            ],
            cwd=ROOT,
            env={**os.environ, "METRICS_TOKEN": TOKEN, "ADMIN_KEY": ADMIN_KEY},
            capture_output=True,
            text=True,
        )
    output = f"{run.stdout}\n{run.stderr}\nSCHEMATHESIS_SEED={seed}"
    assert run.returncode == 0, output
    assert "Selected: 0/" not in run.stdout and "Fuzzing" in run.stdout and "Stateful" in run.stdout, output
    assert server.lines()[1:] == [], "something was logged as a warning or worse"
