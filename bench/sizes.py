"""`python -m bench.sizes`: the lines of code of each room of the engine, beside the numbers of bench/sizes.toml.

A room is the first folder or module under `restkeeper/`, and each feature (`features/keys`). A line of code has
something else than a comment or a docstring; outside of Python, one of more than 120 columns counts as several. `core`
is the Python that a service without features loads. Ends with 1 if a number is exceeded, or if the last commit that
raised one does not say what it `Pays:`. `--write` stores the numbers of today.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "restkeeper"
ALLOWED = Path(__file__).with_name("sizes.toml")
COLUMNS = 120
COMMENTS = {".js": "//", ".sql": "--", ".toml": "#", ".html": "<!--", ".css": "/*"}  # how a line of these kinds starts
IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
CORE = """
import sys
from restkeeper import Config, create_app, find_resources
import resources
create_app(Config(), find_resources(resources), features=())
print(*(each.__file__ for name, each in sys.modules.items() if name.partition(".")[0] == "restkeeper"), sep="\\n")
"""


def count_python(text: str) -> int:
    """The lines of code of a module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in IGNORED:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def count_code(path: Path) -> int:
    """The lines of code of a file; 0 if it is of a kind that does not count."""
    if path.suffix == ".py":
        return count_python(path.read_text(encoding="utf-8"))
    if comment := COMMENTS.get(path.suffix):
        lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
        return sum(-(-len(line) // COLUMNS) for line in lines if not line.startswith(comment))
    return 0


def count_rooms() -> tuple[Counter[str], Counter[str]]:
    """The lines of code of each room, and of each kind of file."""
    rooms: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for path in ENGINE.rglob("*.*"):
        names = path.relative_to(ENGINE).with_suffix("").parts
        if code := count_code(path):
            rooms["/".join(names[:2]) if names[0] == "features" else names[0]] += code
            kinds[path.suffix] += code
    return rooms, kinds


def count_core() -> int:
    """The lines of the Python modules that a service loads whose features are all closed."""
    loaded = subprocess.run((sys.executable, "-c", CORE), cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    return sum(count_code(Path(name)) for name in loaded.stdout.split())


def count_all() -> dict[str, int]:
    """The numbers by the names of bench/sizes.toml."""
    rooms, kinds = count_rooms()
    tests = sum(count_code(path) for path in (ROOT / "tests").rglob("*.py"))
    sums = {"Python": kinds[".py"], "other kinds": kinds.total() - kinds[".py"], "core": count_core(), "tests": tests}
    return dict(sorted(rooms.items())) | sums


def exceeded(counted: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """A sentence for each number that is exceeded, and for each room that has none."""
    return [
        f"{name}: {code:,} lines of code, {allowed.get(name, 0):,} allowed: delete some, or run `python -m "
        "bench.sizes --write` and say in the commit what it Pays:"
        for name, code in counted.items()
        if code > allowed.get(name, 0)
    ]


def raised_without_reason(change: str) -> list[str]:
    """The names whose numbers a commit raises, if its message does not say `Pays:`; `change` is `git show` of it."""
    message, _, difference = change.partition("\ndiff ")
    former, present = (
        {name: int(number) for name, number in re.findall(rf'^\{sign}"(.+)" = (\d+)$', difference, re.MULTILINE)}
        for sign in "-+"
    )
    raised = [name for name, number in present.items() if number > former.get(name, number)]
    return [] if re.search(r"^ +Pays: \S", message, re.MULTILINE) else raised


def last_change() -> str:
    """`git show` of the last commit that changed the numbers; empty where there is no history."""
    command = ("git", "log", "-1", "-p", "--unified=0", "--", str(ALLOWED))
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)  # noqa: S603
    return shown.stdout if shown.returncode == 0 else ""


def main() -> None:
    counted = count_all()
    if sys.argv[1:] == ["--write"]:
        ALLOWED.write_text("".join(f'"{name}" = {code}\n' for name, code in counted.items()), encoding="utf-8")
    allowed = tomllib.loads(ALLOWED.read_text(encoding="utf-8"))
    for name, code in counted.items():
        print(f"{name:<22} {code:6,} of {allowed.get(name, 0):6,}")
    wrong = exceeded(counted, allowed)
    if raised := raised_without_reason(last_change()):
        wrong.append(f"the last commit that changed bench/sizes.toml raised {', '.join(raised)}, and says no Pays:")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
