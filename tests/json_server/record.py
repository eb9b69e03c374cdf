"""json-server as it is, and what it has answered: `python -m tests.json_server.record FOLDER` writes recorded.json.

The folder is the `node_modules` of the package.json here, where each version serves a copy of db.json.
"""

import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests import json_file
from tests.live import send

HERE = Path(__file__).parent
KEPT = ("Link", "X-Total-Count")
PROGRAMS = {"0.17": "json-server-0.17/lib/cli/bin.js", "1": "json-server-1/lib/bin.js"}


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


@contextmanager
def running(file: Path, program: list[str]) -> Iterator[int]:
    """The port of a server of a file, which then ends. Raises RuntimeError if it does not start."""
    (file.parent / "public").mkdir(exist_ok=True)  # 1 needs it then
    with json_file.running(file, program=program) as server:
        yield server.port


def record(version: str, packages: Path) -> dict[str, Any]:
    """The answers of a version."""
    program = packages / PROGRAMS[version]
    about = json.loads((packages / f"json-server-{version}" / "package.json").read_text(encoding="utf-8"))
    answers = dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "db.json").write_text(json.dumps(data(version)), encoding="utf-8")
        with running(file, ["node", str(program)]) as port:
            for each in requests(version):
                found = send(port, "GET", quote(each, safe="/?&=:,._-^"))
                headers = {name: found.headers[name.lower()] for name in KEPT if found.headers.get(name.lower())}
                text = json.dumps({"status": found.status, "headers": headers, "body": found.json()})
                answers[each] = json.loads(text.replace(f":{port}", ""))
    return {"package": about["version"], "answers": answers}


def main(packages: Path) -> None:
    """Write recorded.json."""
    recorded = {version: record(version, packages) for version in PROGRAMS}
    lines = [
        f'"{version}": {{"package": "{each["package"]}", "answers": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in each["answers"].items())
        + "\n}}"
        for version, each in recorded.items()
    ]
    (HERE / "recorded.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
