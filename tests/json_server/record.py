"""Record what json-server answers to the requests of this folder: python record.py 0.17=FOLDER 1=FOLDER.

Each folder has an installed package json-server. It serves a copy of db.json at a free local port.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import urlopen

HERE = Path(__file__).parent
SECONDS = 20
KEPT = ("Link", "X-Total-Count")


def data(version: str) -> dict[str, Any]:
    """The content of db.json; of version 1 all ids are texts, which sort alike."""
    found: dict[str, Any] = json.loads((HERE / "db.json").read_text(encoding="utf-8"))
    for item in [item for part in found.values() if isinstance(part, list) and version == "1" for item in part]:
        item |= {name: f"{value:x}" for name, value in item.items() if name in ("id", "postId")}
    return found


def requests(version: str) -> list[str]:
    """The requests of a version."""
    found: dict[str, list[str]] = tomllib.loads((HERE / "requests.toml").read_text(encoding="utf-8"))
    return found[version]


def get(address: str) -> dict[str, Any]:
    """The answer to a request."""
    try:
        response = urlopen(address, timeout=SECONDS)  # noqa: S310 - local
    except HTTPError as error:
        response = error
    with response:
        body = response.read()
        headers = {name: response.headers[name] for name in KEPT if response.headers[name]}
        return {"status": response.status, "headers": headers, "body": json.loads(body)}


def record(version: str, package: Path) -> dict[str, Any]:
    """The answers of a version."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    about = json.loads((package / "package.json").read_text(encoding="utf-8"))
    program = about["bin"] if isinstance(about["bin"], str) else about["bin"]["json-server"]
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "db.json"
        db.write_text(json.dumps(data(version)), encoding="utf-8")
        command = [shutil.which("node") or "node", str(package / program), "--port", str(port), "--host", "127.0.0.1"]
        with subprocess.Popen([*command, str(db)], cwd=folder, stdout=subprocess.DEVNULL) as process:  # noqa: S603
            try:
                address, end = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS
                while time.monotonic() < end:
                    try:
                        get(f"{address}/profile")
                        break
                    except URLError:
                        time.sleep(0.1)
                answers = {each: get(address + quote(each, safe="/?&=:,._-^")) for each in requests(version)}
            finally:
                process.terminate()
    text = json.dumps(answers).replace(f":{port}", "")
    return {"package": about["version"], "answers": json.loads(text)}


def main() -> None:
    """Write recorded.json."""
    folders = dict(each.split("=", 1) for each in sys.argv[1:])
    recorded = {version: record(version, Path(folder)) for version, folder in folders.items()}
    lines = [
        f'"{version}": {{"package": "{each["package"]}", "answers": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in each["answers"].items())
        + "\n}}"
        for version, each in recorded.items()
    ]
    (HERE / "recorded.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
