"""`make release`: builds the wheel and the source archive of the present commit, checks them, and says what to upload.

It uploads nothing. It builds twice, in two folders, and compares the bytes. It installs each archive in an empty
environment, with each Python of this machine and with the oldest and the newest dependencies that pyproject.toml
allows, and runs tests/test_installed.py there. What is in dist/ at the end has passed all of this.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import restkeeper

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
TOOLS = Path(sys.prefix) / "release" / "bin"  # of requirements-release.txt, apart from what the tests need
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = restkeeper.__version__
EXTRAS = f"[{','.join(PROJECT['project']['optional-dependencies'])}]"
MOST_MEGABYTES = 60  # of an installation without extras, in blocks of the disk
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
PYTEST = {"oldest": "pytest==8.4", "newest": "pytest<10"}  # of the service that `restkeeper new` writes
BUILT_IN = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}  # what the wheel says of itself


class Archives(NamedTuple):
    """What is released."""

    wheel: Path
    source: Path


class Environment(NamedTuple):
    """An environment with a release in it."""

    folder: Path
    python: Path

    @property
    def packages(self) -> Path:
        """The folder of the installed packages."""
        return next(self.folder.glob("lib/python*/site-packages"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.partition("\n")[0])
    parser.add_argument("--require-audit", action="store_true", help="fail if a package could not be audited")
    options = parser.parse_args()
    require_release()
    with tempfile.TemporaryDirectory(prefix="restkeeper-release-") as name:
        work = Path(name)
        archives = build_twice(work)
        check_contents(work / "first" / "source", archives)
        tool("twine", "check", "--strict", *archives)
        say("metadata", "accepted by twine check --strict")
        pythons = [*find_pythons()]
        test_all(work, archives, pythons)
        check_size(work, archives, pythons[0])
        test_runners(work, archives.wheel)
        newest = install(work / "bill", pythons[-1], archives.wheel, extras=EXTRAS)
        bill = write_bill(work, newest)
        for age in RESOLUTIONS:
            audit(age, versions_file(work, pythons[-1], age), is_required=options.require_audit)
        publish([*archives, bill])


def require_release() -> None:
    """Exit unless the work tree is a commit, whose change log is about this version."""
    if changed := run("git", "status", "--porcelain"):
        sys.exit(f"make release: a release is made of a commit; these files differ from it:\n{changed}")
    heading = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    if heading != f"## {VERSION}":
        sys.exit(f"make release: restkeeper.__version__ is {VERSION}, and CHANGELOG.md begins with {heading!r}")
    say("commit", run("git", "log", "-1", "--format=%h %s"))


def build_twice(work: Path) -> Archives:
    """The archives, after they were built in two folders, and the wheel from the source archive as well."""
    first, second = (build(work / name) for name in ("first", "another-folder"))
    unpacked = work / "unpacked"
    shutil.unpack_archive(first.source, unpacked)
    hatchling(unpacked / f"restkeeper-{VERSION}", work / "third", "-t", "wheel")
    for one, other in (*zip(first, second, strict=True), (first.wheel, work / "third" / first.wheel.name)):
        if one.read_bytes() != other.read_bytes():
            sys.exit(f"make release: {one} and {other} differ; a reader could not build {one.name} again")
    say("built", f"{first.wheel.name} and {first.source.name}, twice with the same bytes; the wheel of the source too")
    return first


def build(folder: Path) -> Archives:
    """The archives, from the files of the commit in a new folder."""
    (source := folder / "source").mkdir(parents=True)
    run("git", "archive", "--output", folder / "commit.tar", "HEAD")
    run("tar", "-xf", folder / "commit.tar", "-C", source)
    run("make", "docs", f"VENV={sys.prefix}", folder=source, environ={"SOURCE_DATE_EPOCH": commit_time()})
    hatchling(source, folder / "dist", "-t", "wheel", "-t", "sdist")
    (wheel,), (archive,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return Archives(wheel, archive)


def hatchling(source: Path, target: Path, *options: str) -> None:
    """Build archives with the time of the commit."""
    environ = {"SOURCE_DATE_EPOCH": commit_time()}
    run(sys.executable, "-m", "hatchling", "build", "-d", target, *options, folder=source, environ=environ)


def check_contents(source: Path, archives: Archives) -> None:
    """Exit unless the source archive is the commit, and the wheel its package with the service that `new` writes.

    Both have the site of the documentation, too.
    """
    committed = {
        name: (source / name).read_bytes()
        for name in run("git", "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
        if name
    }
    package = {name: data for name, data in committed.items() if name.startswith("restkeeper/")}
    for origin, target in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items():
        for name, data in committed.items():
            if name == origin or name.startswith(f"{origin}/"):
                package[target + name.removeprefix(origin)] = data
    site = (source / "build/site.zip").read_bytes()
    package |= {"restkeeper/site.zip": site}
    with tarfile.open(archives.source) as archive:
        parts = {name.partition("/")[2]: archive.extractfile(name) for name in archive.getnames()}
        packed = {name: file.read() for name, file in parts.items() if file and name != "PKG-INFO"}
    require_same(archives.source, packed, committed | {"build/site.zip": site})
    about = f"restkeeper-{VERSION}.dist-info/"
    with zipfile.ZipFile(archives.wheel) as wheel:
        names = {*wheel.namelist()}
        described = {name for name in names if name.startswith(about)}
        require_same(archives.wheel, {name: wheel.read(name) for name in names - described}, package)
    require_same(archives.wheel, dict.fromkeys(described, b""), {about + name: b"" for name in BUILT_IN})
    say("contents", f"{len(committed)} files of the commit, and its site; {len(package)} in the wheel")


def require_same(archive: Path, packed: Mapping[str, bytes], expected: Mapping[str, bytes]) -> None:
    """Exit unless these files are in an archive, and no others."""
    wrong = {name for name in packed.keys() | expected.keys() if packed.get(name) != expected.get(name)}
    if wrong:
        sys.exit(f"make release: {archive.name} lacks these files, or has others of these names: {sorted(wrong)}")


def find_pythons() -> Iterator[Path]:
    """Python 3.11 and each newer one on PATH, the oldest first. One that does not run is named and left out."""
    for minor in takewhile(lambda minor: minor < 30, count(11)):
        if program := shutil.which(f"python3.{minor}"):
            if subprocess.run((program, "-c", "import ssl, venv"), capture_output=True, check=False).returncode:
                say("left out", f"{program} does not run")
            else:
                yield Path(program)


def test_all(work: Path, archives: Archives, pythons: list[Path]) -> None:
    """Run the tests of an installation: each archive, each Python, the oldest and the newest dependencies."""
    for python in pythons:
        for age, resolution in RESOLUTIONS.items():
            versions = versions_file(work, python, age)
            compiled = ("--resolution", resolution, "--python", python, "--only-binary", ":all:", "--all-extras")
            tool(
                "uv",
                "pip",
                "compile",
                "-q",
                "--no-header",
                "--no-annotate",
                *compiled,
                "-o",
                versions,
                "pyproject.toml",
            )
            for archive in archives:
                name = f"{python.name}-{age}-{'wheel' if archive is archives.wheel else 'source'}"
                environment = install(work / name, python, archive, "-c", versions, PYTEST[age], extras=EXTRAS)
                tests = test(archives.wheel, "--environment", environment.folder)
                packages = len(versions.read_text(encoding="utf-8").splitlines())
                say(name, f"{packages} packages: {tests}")


def versions_file(work: Path, python: Path, age: str) -> Path:
    """The file of the oldest or the newest versions for a Python."""
    return work / f"{python.name}-{age}.txt"


def install(folder: Path, python: Path, archive: Path, *options: str | Path, extras: str = "") -> Environment:
    """A new environment with an archive. Only the source archive may be built; nothing is compiled."""
    environment = Environment(folder, folder / "bin/python")
    tool("uv", "venv", "-q", "--python", python, folder)
    wheels = () if archive.suffix == ".gz" else ("--only-binary", ":all:")
    requirement = f"restkeeper{extras} @ {archive.as_uri()}"
    tool("uv", "pip", "install", "-q", "--python", environment.python, *wheels, requirement, *options)
    tool("uv", "pip", "check", "-q", "--python", environment.python)
    return environment


def test(wheel: Path, *options: str | Path) -> str:
    """The last line of the tests of an installation; exits if one fails."""
    pytest = (sys.executable, "-m", "pytest", "-m", "matrix", "tests/test_installed.py", "--wheel", wheel)
    return run(*pytest, *options).splitlines()[-1]


def check_size(work: Path, archives: Archives, python: Path) -> None:
    """Exit if an installation without extras is too large, or does not serve. Modules are compiled, as by pip."""
    plain = install(work / "plain", python, archives.wheel, "--compile-bytecode")
    megabytes = sum(path.lstat().st_blocks for path in plain.packages.rglob("*")) / 2**11  # of 512 bytes
    packages = len([*plain.packages.glob("*.dist-info")]) - 1  # without Restkeeper itself
    if megabytes > MOST_MEGABYTES:
        sys.exit(f"make release: {megabytes:.0f} MB without extras; at most {MOST_MEGABYTES}")
    tool("uv", "pip", "install", "-q", "--python", plain.python, PYTEST["newest"])
    tests = test(archives.wheel, "--environment", plain.folder, "-k", "not gunicorn")
    say("without extras", f"{packages} packages, {megabytes:.0f} MB, nothing compiled: {tests}")


def test_runners(work: Path, wheel: Path) -> None:
    """Run the command by uvx and by pipx, which install the wheel in environments of their own."""
    for command in (f"{TOOLS}/uvx -q --from {wheel} restkeeper", f"{TOOLS}/pipx run --spec {wheel} restkeeper"):
        os.environ |= {"PIPX_HOME": str(work / "pipx"), "PIPX_BIN_DIR": str(work / "pipx/bin")}
        say(Path(command.partition(" ")[0]).name, test(wheel, "--command", command, "-k", "json_file"))
        run(*command.split(), "new", "shop", folder=(folder := Path(tempfile.mkdtemp(dir=work))))
        if not (folder / "shop/app.py").exists():
            sys.exit(f"make release: {command} new shop: wrote no service")


def write_bill(work: Path, newest: Environment) -> Path:
    """The bill of materials: what an installation with all extras has, with the newest dependencies."""
    bill, project = work / f"restkeeper-{VERSION}.cdx.json", work / "pyproject.toml"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project.write_text(text.replace('dynamic = ["version"]', f'version = "{VERSION}"'), encoding="utf-8")
    options = ("--output-reproducible", "--pyproject", project, "--mc-type", "library", "-o", bill)
    tool("cyclonedx-py", "environment", *options, newest.python, environ={"SOURCE_DATE_EPOCH": commit_time()})
    say("bill of materials", f"{len(json.loads(bill.read_bytes())['components'])} packages")
    return bill


def audit(age: str, versions: Path, *, is_required: bool) -> None:
    """Exit if one of these versions has a known vulnerability, or if the audit is required and not possible.

    Where no service knows a package, pip-audit skips the package and succeeds.
    """
    options = ("--progress-spinner", "off", "--no-deps", "--disable-pip", "-f", "json", "-r", versions)
    done = subprocess.run((TOOLS / "pip-audit", *options), capture_output=True, text=True, check=False)
    packages = json.loads(done.stdout)["dependencies"] if done.stdout.startswith("{") else []
    weak = [
        f"{package['name']} {package['version']}: {vulnerability['id']}"
        for package in packages
        for vulnerability in package.get("vulns", ())
    ]
    if weak:
        sys.exit("make release: these packages have known vulnerabilities:\n" + "\n".join(weak))
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if packages and not skipped:
        say(f"audit, {age}", f"{len(packages)} packages without a known vulnerability")
        return
    why = f"{len(skipped)} packages are unknown to the service" if packages else done.stderr.strip().splitlines()[-1]
    line = f"NOT DONE, no service of known vulnerabilities answered: {why}"
    if is_required:
        sys.exit(f"make release: audit, {age}: {line}")
    say(f"audit, {age}", f"{line}. Repeat it where there is one: make release ARGUMENTS=--require-audit")


def publish(files: list[Path]) -> None:
    """Put the files and their checksums in dist/, and print what to upload."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    for file in files:
        shutil.copy(file, DIST)
    lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    (DIST / "SHA256SUMS").write_text(lines, encoding="utf-8")
    archives = " ".join(f"dist/{file.name}" for file in files[:2])
    print(f"\nIn dist/:\n{lines}\nNothing is uploaded. What to upload:")
    print(f"  twine upload {archives}")
    print(f"  a tag v{VERSION} of this commit, with all files of dist/")


def commit_time() -> str:
    """When the commit was made, in seconds since the epoch."""
    return run("git", "log", "-1", "--format=%ct")


def tool(name: str, *arguments: str | Path, environ: Mapping[str, str] | None = None) -> str:
    """What a tool of the release prints."""
    return run(TOOLS / name, *arguments, environ=environ)


def run(*command: str | Path, folder: Path = ROOT, environ: Mapping[str, Any] | None = None) -> str:
    """What a program prints; exits with all its lines if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | (environ or {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"make release: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def say(name: str, text: str) -> None:
    """Print the result of a step."""
    print(f"{name:<30} {text}", flush=True)


if __name__ == "__main__":
    main()
