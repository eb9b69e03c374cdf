"""examples/testing: each way to test against a service works by the command of its README."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT

README = (ROOT / "examples" / "testing" / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (.*?) +#", README, re.M)
PROGRAMS = {  # of a user who has installed the packages
    "restkeeper": "-m restkeeper",
    "pytest": "-m pytest -p restkeeper.pytest_plugin",
    "python": "",
}
PASSED = re.compile(r"\b\d+ passed|^OK$|pass [1-9]\d*$", re.M)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".venv", "*.db*"))
    (tmp_path / "bin").mkdir()
    for name, options in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
        program.chmod(0o755)
    return tmp_path


def test_there_are_five() -> None:
    files = {path.name for path in (ROOT / "examples" / "testing").glob("*test*.*")}
    assert {command.split()[-1] for command in COMMANDS} == files
    assert len(COMMANDS) == 5


@pytest.mark.matrix
@pytest.mark.parametrize("command", COMMANDS)
def test_it_passes(command: str, folder: Path) -> None:
    environ = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell, own = ["sh", "-c", f"{command} 2>&1"], folder / "testing"
    done = subprocess.run(shell, cwd=own, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and PASSED.search(done.stdout), done.stdout
