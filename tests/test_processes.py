"""What a process of the tests has started ends with it, also if it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.processes import running, state
from tests.waiting import until

# A gunicorn, and a process that has left its session and its environment, and whose parent has ended.
STARTS = """
import os, subprocess, sys, time
from pathlib import Path
from tests.live import Gunicorn
from tests.processes import children, new_folder, supervise

supervise(*map(int, sys.argv[1:]))
folder = new_folder()
server = Gunicorn(folder, start_new_session=True).__enter__()
daemon = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid(); print(os.getpid(), flush=True); time.sleep(1000)"
left = subprocess.run([sys.executable, "-c", daemon], stdout=open(folder / "pid", "w"), env={}, check=True)
while not (daemon := (folder / "pid").read_text().strip()):
    time.sleep(0.01)
print(folder, daemon, server.process.pid, *server.worker_pids(), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("killed", ["itself", "another"])
def test_nothing_is_left_of_a_killed_process(killed: str) -> None:
    """Itself is killed, or another process with which it has to end."""
    with subprocess.Popen(["sleep", "1000"]) as other:
        command = [sys.executable, "-c", STARTS, str(other.pid)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starting:
            assert starting.stdout
            folder, *pids = starting.stdout.readline().split()
            assert len(pids) >= 3 and all(state(int(pid)) for pid in pids)
            os.kill(starting.pid if killed == "itself" else other.pid, signal.SIGKILL)
        other.kill()
    until(lambda: not {*map(int, pids)}.intersection(running()) and not Path(folder).exists())
