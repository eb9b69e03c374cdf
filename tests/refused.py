"""Commands of `restkeeper` that end with an error: each in its own fork of one process, which has loaded the engine."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.live import ROOT
from tests.ports import free_ports
from tests.waiting import SECONDS

_FORKS = """
import json, os, runpy, sys
import restkeeper.app, restkeeper.cli.loading, restkeeper.features.files, restkeeper.server.master
for folder, *arguments in json.loads(sys.argv.pop()):
    if not os.fork():
        os.chdir(folder)
        os.dup2(os.open("stderr", os.O_CREAT | os.O_WRONLY), 2)
        sys.argv[:] = ["restkeeper", *arguments]
        try:
            runpy.run_module("restkeeper", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            isinstance(end.code, str) and print(end.code, file=sys.stderr)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)  # the end of Python takes 0.1 s
    assert os.waitstatus_to_exitcode(os.wait()[1])
    print(json.dumps(open(f"{folder}/stderr").read().splitlines()), flush=True)
"""


def printed_by(commands: Sequence[tuple[Path, *tuple[str, ...]]]) -> list[list[str]]:
    """The lines on standard error of each command, given as its folder and its arguments."""
    (port,) = free_ports(1)  # another program of this machine can have the one by default
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "AUTH": "open", "PORT": str(port)}
    given = json.dumps(commands, default=str)
    done = subprocess.run(
        [sys.executable, "-P", "-c", _FORKS, given],
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS * len(commands),
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
