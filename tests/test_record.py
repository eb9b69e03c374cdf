"""The recording of responses, by which a change of the code shows that it changes none (`python -m tests.record`)."""

import gzip
import json
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.live import ROOT
from tests.record import ENGINE, PLANTED, Script

REQUESTS = 400


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.record", *arguments, "--store", "sqlite", "--requests", str(REQUESTS)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_recording_finds_a_response_that_differs(tmp_path: Path) -> None:
    """Of the same code all responses are the same; of a stored one with another value the request is named."""
    assert run("--write", str(tmp_path)).returncode == 0
    same = run("--compare", str(tmp_path))
    assert same.returncode == 0 and f"0 of {REQUESTS} responses differ" in same.stdout, same.stdout
    file = tmp_path / "sqlite.json.gz"
    stored = json.loads(gzip.decompress(file.read_bytes()))
    stored["responses"][100]["status"] = 999
    file.write_bytes(gzip.compress(json.dumps(stored).encode()))
    other = run("--compare", str(tmp_path))
    assert other.returncode == 1 and f"1 of {REQUESTS} responses differ" in other.stdout, other.stdout
    assert "status: 999" in other.stdout and Script().write(REQUESTS)[100].path in other.stdout


def test_each_planted_fault_has_its_place() -> None:
    """The text that it replaces is in its file, once: else a recording would be without this fault."""
    faults = tomllib.loads(PLANTED.read_text(encoding="utf-8"))
    assert len(faults) >= 30
    for name, each in faults.items():
        found = (ENGINE / each["file"]).read_text(encoding="utf-8").count(each["text"])
        assert found == 1 and each["by"] != each["text"], (name, found)
