"""`python -m bench.sizes`: the lines of each part of the engine (Python and SQL, all lines), and its modules.

A part is the first folder or module under `restkeeper/`, and each feature (`features/keys`). The template of new
services is no code of the engine.
"""

from collections import Counter
from pathlib import Path

ENGINE = Path(__file__).parent.parent / "restkeeper"


def count_lines() -> tuple[Counter[str], Counter[str]]:
    """The lines and the Python modules of each part."""
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path in (*ENGINE.rglob("*.py"), *ENGINE.rglob("*.sql")):
        names = path.relative_to(ENGINE).with_suffix("").parts
        if "skeleton" not in names:
            part = "/".join(names[:2]) if names[0] == "features" else names[0]
            lines[part] += len(path.read_text(encoding="utf-8").splitlines())
            modules[part] += path.suffix == ".py"
    return lines, modules


def main() -> None:
    lines, modules = count_lines()
    for part, number in sorted(lines.items()):
        print(f"{part:<22} {number:6,} lines {modules[part]:4} modules")
    print(f"{'the engine':<22} {lines.total():6,} lines {modules.total():4} modules")


if __name__ == "__main__":
    main()
