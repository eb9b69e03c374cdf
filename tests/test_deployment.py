"""The files of deploy/: each is checked by its own tool as far as that needs no container engine, and by its rules."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

import restkeeper
from restkeeper.config import Config
from tests.live import ROOT, Gunicorn
from tests.processes import open_files
from tests.proxy import CADDY, DEPLOY, NAME
from tests.waiting import SECONDS, until

BIN = Path(sys.executable).parent
CONTAINERFILE = DEPLOY / "Containerfile"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OWN = ["release", "web", "worker", "reaper"]
PROCFILE = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())


def run(*command: str | Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)


def stages(file: Path = CONTAINERFILE) -> list[list[tuple[str, str]]]:
    """The instructions of each stage of the Containerfile, with their arguments."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.M).replace("\\\n", " ")
    instructions = [(line.split()[0], " ".join(line.split()[1:])) for line in text.splitlines() if line.strip()]
    starts = [place for place, (name, _) in enumerate(instructions) if name == "FROM"]
    return [instructions[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def test_the_image_has_what_it_needs_and_an_ordinary_user() -> None:
    """Packages come from wheels with hashes, in the first stage; the last one installs nothing and removes pip."""
    build, last = stages()
    (install,) = [text for name, text in build if name == "RUN" and " install " in text]
    assert {"--require-hashes", "--only-binary=:all:"} <= set(install.split())
    commands = [text for name, text in last if name == "RUN"]
    assert [text for text in commands if re.search(r"\b(install|apt-get|apk|gcc|make|curl)\b", text)] == []
    assert commands[0].startswith("pip uninstall")
    assert [text for name, text in last if name == "COPY"] == ["--from=build /opt/restkeeper /opt/restkeeper"]
    names = [name for name, _ in last]
    assert dict(last)["USER"] == "10001:10001" and names.index("USER") < names.index("HEALTHCHECK") < names.index("CMD")
    assert dict(last)["CMD"] == json.dumps(PROCFILE["web"].split())
    assert re.search(r"^ARG PYTHON=\S+:\d+\.\d+\.\d+-slim-\w+$", CONTAINERFILE.read_text(), re.M)
    lines = (ROOT / ".containerignore").read_text().splitlines()
    seen = {line[1:] for line in lines if line.startswith("!")}
    copied = {source for name, text in build if name == "COPY" for source in text.split()[:-1]}
    assert "*" in lines and seen == copied
    assert [path for path in seen if not (ROOT / path).exists()] == []
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()


def test_the_image_has_the_command(tmp_path: Path) -> None:
    """Messages say `run: restkeeper keys create …`: the folder of the service is the working folder."""
    build, last = stages()
    (command,) = [text for name, text in build if name == "RUN" and "python -m restkeeper" in text]
    assert run("/bin/sh", "-c", command.replace("/opt/restkeeper/bin", str(tmp_path))).returncode == 0
    done = run(tmp_path / "restkeeper", "--version", PATH=f"{BIN}:{os.environ['PATH']}")
    assert done.stdout == f"restkeeper {restkeeper.__version__}\n"
    assert dict(last)["WORKDIR"] == "/opt/restkeeper/service"


def test_the_harness_is_an_image_of_the_service() -> None:
    """Its command starts in the service's folder, for other machines; its health check has an answer there."""
    (stage,) = stages(DEPLOY / "Containerfile.harness")
    assert [name for name, _ in stage] == ["FROM", "EXPOSE", "HEALTHCHECK", "CMD"]
    parts = dict(stage)
    program, *options = json.loads(parts["CMD"])
    port, ports = parts["EXPOSE"].split()
    assert program == "python" and (options.pop(), options.pop()) == (ports, "--ports")
    assert (options.pop(), options.pop()) == (port, "--port") and "PORT=8000" in CONTAINERFILE.read_text()
    environ = {"PATH": os.environ["PATH"], "PORT": port}
    with subprocess.Popen([sys.executable, *options], cwd=ROOT, env=environ, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout
            line = json.loads(running.stdout.readline())
            check = parts["HEALTHCHECK"].partition(" CMD ")[2]
            script = DEPLOY / json.loads(check)[1]
            done = run(sys.executable, script, PORT=line["url"].rpartition(":")[2])
            assert done.returncode == 0, done.stdout
            with socket.create_connection(("127.0.0.2", int(line["url"].rpartition(":")[2]))):  # as any other address
                pass
        finally:
            running.terminate()


def test_proxies_and_processes_agree_on_an_address() -> None:
    """The one where a start without settings listens, and that of honcho in docs/deployment.md."""
    page = (ROOT / "docs/deployment.md").read_text()
    ((host, port),) = re.findall(r"^HOST=(\S+) honcho start --port (\d+) web", page, re.M)
    assert f"server {host}:{port} " in (DEPLOY / "nginx.conf").read_text()
    assert f"{{$UPSTREAM:{host}:{port}}}" in (DEPLOY / "Caddyfile").read_text()
    assert (Config().host, Config().port) == (host, int(port))


def test_the_health_check_needs_no_curl(served: Gunicorn) -> None:
    """It asks with a host that the service accepts; the exit code says whether the service responds."""
    for hosts, code in (NAME, 0), (f"*.{NAME},x.example", 0), (f".{NAME}", 0), ("", 0), ("other.example", 1):
        done = run(sys.executable, DEPLOY / "healthcheck.py", PORT=str(served.port), TRUSTED_HOSTS=hosts)
        assert done.returncode == code, done.stdout
        assert ('"status":"ok"' in done.stdout) == (code == 0)
    done = run(sys.executable, DEPLOY / "healthcheck.py", PORT="1")
    assert (done.returncode, done.stderr) == (1, "")
    assert "refused" in done.stdout


def nightly_by_cron() -> str:
    """The command of the line in docs/operations.md, as cron gives it to the shell."""
    (line,) = re.findall(r"^0 3 \* \* \* (.*)$", (ROOT / "docs/operations.md").read_text(), re.M)
    return str(line).replace("\\%", "%")


def nightly_by_systemd() -> str:
    """The command of the unit, as systemd starts it."""
    (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "systemd/restkeeper-backup.service").read_text(), re.M)
    return str(line).replace("%%", "%").replace("$$", "$")


@pytest.mark.sqlite
def test_nightly_backups_are_replaced_after_a_week(served: Gunicorn, tmp_path: Path) -> None:
    """Beside the running service, by cron and by systemd: one for each day of the week, with the items of that day."""
    backups, store = tmp_path / "backups", served.log.with_name("restkeeper.db")
    programs = {
        "date": '[ "$*" = +%u ] && echo "$DAY"',
        **{f"bin/{name}": f'exec {sys.executable} -m {name} "$@"' for name in ("restkeeper", "flask")},
    }
    for folder in (backups, tmp_path / "bin"):
        folder.mkdir()
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environ = {"DATABASE_URL": f"sqlite:///{store}", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ids = []
    for day, command in (("1", nightly_by_cron()), ("7", nightly_by_systemd()), ("1", nightly_by_cron())):
        ids.append(served.post("/products", {"name": day}).json()["id"])
        command = command.replace("/var/lib/restkeeper/backups", str(backups))
        command = command.replace("/opt/restkeeper/.venv", str(tmp_path)).replace(".venv", str(tmp_path))
        done = run("/bin/sh", "-c", command.replace("/opt/restkeeper", str(ROOT)), DAY=day, **environ)
        assert (done.returncode, done.stderr) == (0, "")
    stored = {}
    for file in backups.iterdir():
        with closing(sqlite3.connect(file)) as connection:
            stored[file.name] = {id for (id,) in connection.execute("SELECT id FROM items")}
    assert stored == {"1.db": {*ids}, "7.db": {*ids[:2]}}


def test_a_log_file_can_be_rotated(tmp_path: Path) -> None:
    """By its new name and USR1, and by copytruncate: no line is lost, and none is in two files."""
    log, former = tmp_path / "service.log", tmp_path / "service.log.1"
    with Gunicorn(tmp_path, "--error-logfile", str(log), "--capture-output", workers=2) as server:

        def ask(id: str, file: Path) -> None:
            server.get("/healthz", {"X-Request-Id": id})
            until(lambda: file.exists() and file.read_text().count(f"request_id={id} ") == 1)

        ask("first", log)
        log.rename(former)
        ask("second", former)
        server.process.send_signal(signal.SIGUSR1)
        pids = server.worker_pids()
        until(lambda: all(open_files(pid).count(str(log)) >= 2 for pid in pids))  # its standard output and error
        ask("third", log)
        log.write_bytes(b"")
        ask("fourth", log)
        assert log.read_bytes().startswith(b"2") and "third" not in former.read_text() + log.read_text()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    hosts = f"{NAME},*.{NAME},localhost"
    folder, bounds = tmp_path_factory.mktemp("served"), {"failure_limit": "off"}
    with Gunicorn(folder, workers=1, TRUSTED_HOSTS=hosts, bounds=bounds) as server:
        yield server


def test_compose_has_its_form_processes_and_settings() -> None:
    """The JSON Schema of the Compose Specification."""
    done = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout
    services = COMPOSE["services"]
    commands = {name: services[name].get("command", PROCFILE["web"].split()) for name in OWN}
    assert commands == {name: command.split() for name, command in PROCFILE.items()}
    assert [name for name, each in services.items() if "ports" in each] == ["proxy"]
    assert COMPOSE["networks"]["data"] == {"internal": True}
    assert [services[name]["networks"] for name in ("postgresql", "redis", "proxy")] == [["data"], ["data"], ["front"]]
    settings = {name.upper() for name in Config.__dataclass_fields__} | {"DATABASE_CONNECTIONS"}
    for name in OWN:
        environment = COMPOSE["services"][name]["environment"]
        assert {key.removesuffix("_FILE") for key in environment} <= settings
        files = {value.removeprefix("/run/secrets/") for key, value in environment.items() if key.endswith("_FILE")}
        assert files == set(COMPOSE["services"][name]["secrets"]) <= set(COMPOSE["secrets"])
    assert COMPOSE["services"]["web"]["environment"]["TRUSTED_PROXIES"] == "1"


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_compose_limits_each_service(name: str) -> None:
    """No capability, a read-only file system, limits of memory, processors and processes; the version is exact."""
    service = COMPOSE["services"][name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert service["image"] == "restkeeper" or re.search(r":\d+\.\d+", service["image"])
    assert name in OWN or service["healthcheck"]["test"][0] == "CMD"


def test_the_caddyfile_and_the_containerfile_are_valid(tmp_path: Path) -> None:
    file = DEPLOY / "Caddyfile"
    environ = {"HOME": str(tmp_path), "SITE": NAME, "UPSTREAM": "web:8000"}
    checked = run(CADDY, "validate", "--config", file, "--adapter", "caddyfile", **environ)
    assert checked.returncode == 0, checked.stderr
    assert run(CADDY, "fmt", file, **environ).stdout == file.read_text()
    done = run(BIN / "hadolint", CONTAINERFILE)
    assert (done.returncode, done.stdout) == (0, "")
