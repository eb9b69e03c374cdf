"""Run all attacks, or those whose names contain one of the arguments."""

import pkgutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import tests.attacks


def attacks() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """All attacks with their names."""
    for module in sorted(found.name for found in pkgutil.iter_modules(tests.attacks.__path__)):
        if module not in ("__main__", "health"):
            functions = vars(import_module(f"tests.attacks.{module}")).items()
            yield from ((f"{module}.{name}", each) for name, each in functions if name.startswith("attack_"))


def main(names: list[str]) -> None:
    """Run the attacks one after the other; exit with the names of those that failed, if any."""
    chosen = [(name, attack) for name, attack in attacks() if not names or any(word in name for word in names)]
    if not chosen:
        sys.exit(f"no attack is called so: {' '.join(names)}")
    failed = []
    for name, attack in chosen:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            try:
                outcome = attack(Path(folder))
            except Exception:
                failed.append(name)
                outcome = f"FAILED\n{traceback.format_exc()}"
            print(f"{name}: {outcome} ({time.perf_counter() - began:.0f} s)", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
