"""The units of deploy/systemd: systemd accepts them, and the processes run under what their sandbox forbids."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live import ROOT, send
from tests.ports import free_ports
from tests.proxy import DEPLOY, require
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.matrix

UNITS = DEPLOY / "systemd"
SERVICES = ("restkeeper-web", "restkeeper-worker", "restkeeper-reaper", "restkeeper-backup")
COMMON = (UNITS / "restkeeper-.service.d" / "common.conf").read_text()
MOST_EXPOSURE = 15  # of 100: what `systemd-analyze security` counts; 50 and more is "medium"
BIN = Path(sys.executable).parent


def settings(text: str, name: str) -> list[str]:
    return [word for line in re.findall(rf"^{name}=(.*)$", text, re.M) for word in line.split()]


def command_of(service: str) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", (UNITS / f"{service}.service").read_text(), re.M)
    return shlex.split(line.replace("/opt/restkeeper/.venv/bin", str(BIN)).replace("%%", "%").replace("$$", "$"))


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    systemd = require("systemd-analyze")
    shutil.copytree(UNITS, tmp_path / "units")
    for file in (tmp_path / "units").glob("*.service"):
        file.write_text(file.read_text().replace("/opt/restkeeper/.venv/bin", str(BIN)))
    files = [str(file) for file in sorted((tmp_path / "units").glob("restkeeper-*.*")) if file.is_file()]
    assert len(files) == 7
    done = subprocess.run([systemd, "verify", "--man=no", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_is_closed_in(service: str) -> None:
    """By what systemd counts; the common file applies to each."""
    systemd = require("systemd-analyze")
    command = [systemd, "security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", str(UNITS / f"{service}.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def forbidden_calls() -> set[str]:
    """The system calls that SystemCallFilter does not allow, of those that systemd knows."""
    systemd = require("systemd-analyze")
    listed = subprocess.run([systemd, "syscall-filter"], capture_output=True, text=True, check=True).stdout
    groups: dict[str, list[str]] = {}
    for line in listed.splitlines():
        if line.startswith("@"):
            groups[line.strip()] = members = []
        elif line.startswith("    ") and not line.lstrip().startswith("#"):
            members.append(line.strip())

    def expand(name: str) -> set[str]:
        return set().union(*map(expand, groups[name])) if name.startswith("@") else {name}

    (allowed, *denied) = settings(COMMON, "SystemCallFilter")
    calls = expand(allowed).difference(*(expand(name.lstrip("~")) for name in denied))
    return expand("@known") - calls


def test_the_filter_has_the_calls_of_its_names() -> None:
    """Processes may be created, and no file system mounted."""
    forbidden = forbidden_calls()
    assert {"mount", "reboot", "chown", "setuid", "setrlimit", "ptrace", "bpf"} <= forbidden
    assert not forbidden & {"clone", "execve", "mmap", "fsync", "flock", "socket", "getrandom"}


PR_SET_NO_NEW_PRIVS, PR_SET_MDWE, MDWE_REFUSE_EXEC_GAIN = 38, 65, 1
CLONE_NEWUSER = 0x10000000
SCMP_ACT_ALLOW, SCMP_ACT_EPERM = 0x7FFF0000, 0x00050001


def become_ordinary(process: ctypes.CDLL) -> None:
    """Let root be an ordinary user, who owns the same files, in a user namespace: SQLite changes owners for root."""
    user, group = os.geteuid(), os.getegid()
    if process.unshare(CLONE_NEWUSER):
        raise OSError("this machine allows no user namespace: run the tests as an ordinary user")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"10001 {user} 1")
    Path("/proc/self/gid_map").write_text(f"10001 {group} 1")


def sandbox(forbidden: set[str]) -> Callable[[], None]:
    """What a new process does before its program: what systemd does for these lines of common.conf."""
    assert {"yes"} == {*settings(COMMON, "NoNewPrivileges"), *settings(COMMON, "MemoryDenyWriteExecute")}
    families = {int(getattr(socket, name)) for name in settings(COMMON, "RestrictAddressFamilies")}
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    process = ctypes.CDLL(None)

    class Argument(ctypes.Structure):
        _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))

    context = ctypes.c_void_p(seccomp.seccomp_init(SCMP_ACT_ALLOW))
    for name in sorted(forbidden):
        if (number := seccomp.seccomp_syscall_resolve_name(name.encode())) >= 0:
            assert seccomp.seccomp_rule_add_array(context, SCMP_ACT_EPERM, number, 0, None) == 0, name
    call = seccomp.seccomp_syscall_resolve_name(b"socket")
    for family in set(range(64)) - families:
        rule = (Argument * 1)(Argument(0, 4, family, 0))  # the first argument equals the family
        assert seccomp.seccomp_rule_add_array(context, SCMP_ACT_EPERM, call, 1, rule) == 0

    def enter() -> None:
        os.umask(0o077)
        if os.geteuid() == 0:
            become_ordinary(process)
        for option, value in ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_MDWE, MDWE_REFUSE_EXEC_GAIN)):
            if process.prctl(option, value, 0, 0, 0):
                raise OSError(f"prctl({option}) failed")
        if seccomp.seccomp_load(context):
            raise OSError("the filter cannot be loaded")

    return enter


def test_all_processes_run_in_the_sandbox(tmp_path: Path) -> None:
    """The service reports that it is ready (Type=notify), counts, writes, and stops; so do the others."""
    (port,) = free_ports(1)
    enter = sandbox(forbidden_calls())
    environ = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": f"sqlite:///{tmp_path}/restkeeper.db",
        "PORT": str(port),
        "AUTH": "open-to-all",
        "RATE_LIMIT": "100 per minute",
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
    }
    running = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, (tmp_path / "log.txt").open("w") as log:
        notify.bind(environ["NOTIFY_SOCKET"])
        notify.settimeout(SECONDS)

        def start(service: str) -> "subprocess.Popen[str]":
            running.append(
                subprocess.Popen(
                    [word.replace("/var/lib/restkeeper/backups", str(tmp_path)) for word in command_of(service)],
                    cwd=ROOT,
                    env=environ,
                    stdout=log,
                    stderr=log,
                    text=True,
                    preexec_fn=enter,
                )
            )
            return running[-1]

        def written() -> str:
            return (tmp_path / "log.txt").read_text()

        try:
            web = start("restkeeper-web")
            until(lambda: "serves 2 collections" in written() or web.poll() is not None)
            assert web.poll() is None and notify.recv(1000).startswith(b"READY=1"), written()
            worker = start("restkeeper-worker")
            made = send(port, "POST", "/products", {"name": "Lamp"})
            assert (made.status, made.headers["x-ratelimit-remaining"]) == (200, "99"), written()
            until(lambda: "delivering from" in written())
            for service in ("restkeeper-reaper", "restkeeper-backup"):
                assert start(service).wait(timeout=SECONDS) == 0, written()
            assert [*tmp_path.glob("[1-7].db")], written()
            for process in (web, worker):
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=SECONDS) == 0
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                process.wait(timeout=SECONDS)
    assert "Traceback" not in written() and "Operation not permitted" not in written()
