"""Mistakes in the files of a service, in one line: where, and what is wrong.

A traceback of such a mistake is long, and most of it is of gunicorn, Flask and the engine. The engine raises ValueError
for a declaration that is wrong; its other errors, and those in functions of the service, keep their traceback, of which
a server in development shows the lines of the service.
"""

import os
import sys
import sysconfig
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, ModuleType

from restkeeper.positions import ENGINE, DeclarationError

_LIBRARIES = (*(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib")), "<")
_MAIN = ("app.py", "routes.py")  # which create the application, or add to that of a file
_CALLED = ("create_app", "declare")  # functions in them


def load_module(file: Path) -> ModuleType:
    """Run a file of the service as the module of its name."""
    spec = spec_from_file_location(file.stem, file)
    assert spec and spec.loader  # noqa: S101 - it is a file that ends in .py
    module = sys.modules[file.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mistake_in(error: BaseException) -> str:
    """The line for an error of the declarations of a service, while they are loaded; empty for any other error."""
    positions: list[tuple[str, int, CodeType | None]] = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if name.startswith(ENGINE) or not name.startswith(_LIBRARIES):
            positions.append((os.path.abspath(name), number, frame.f_code))
    if isinstance(error, SyntaxError) and error.filename:
        positions.append((os.path.abspath(error.filename), error.lineno or 0, None))
    own = [position for position in positions if not position[0].startswith(ENGINE)]
    folder = next((os.path.dirname(file) for file, _, _ in own if os.path.basename(file) in _MAIN), None)
    if folder is None or not own[-1][0].startswith(os.path.join(folder, "")):
        return ""
    file, line, code = own[-1]
    if isinstance(error, DeclarationError) and error.position[0].startswith(os.path.join(folder, "")):
        return f"{os.path.relpath(error.position[0], folder)}:{error.position[1]}: {error}"
    location = f"{os.path.relpath(file, folder)}:{line}: "
    text = _last_line(error)
    inner = [code.co_name for file, _, code in positions[positions.index(own[-1]) + 1 :] if code]
    is_keyword = type(error) is TypeError and "keyword argument" in text and {*inner} == {"__init__"}  # of a field
    if not inner or is_keyword:
        in_function = code and code.co_flags & CO_OPTIMIZED and code.co_name not in _CALLED
        return "" if in_function else location + text
    return (
        location + str(error) if type(error) in (ValueError, DeclarationError) else ""
    )  # by the engine, about a declaration


def own_traceback(error: BaseException) -> str:
    """The traceback of an error and its causes with the lines of the service alone; all lines if it has none there."""
    shown = whole = traceback.TracebackException.from_exception(error)
    has_own = bool(getattr(error, "__notes__", ()))  # which name a function of the service
    while whole:
        own = [each for each in whole.stack if not os.path.abspath(each.filename).startswith((ENGINE, *_LIBRARIES))]
        whole.stack[:], has_own = own, has_own or bool(own)
        whole = whole.__cause__ or (None if whole.__suppress_context__ else whole.__context__)  # type: ignore[assignment]
    if not has_own:
        return "".join(traceback.format_exception(error)).rstrip("\n")
    return "".join([*shown.format(), "The engine's lines are left out: LOG_LEVEL=debug shows them."])


def position_of(error: BaseException) -> str:
    """The last line of the service that an error has passed, such as "resources/jobs.py:12"; empty if there is none."""
    files = [
        (os.path.abspath(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    lines = [(file, line) for file, line in files if not file.startswith((ENGINE, *_LIBRARIES))]
    return "".join(f"{os.path.relpath(file)}:{line}" for file, line in lines[-1:])


def line_of(error: BaseException) -> str:
    """An error in one line: its last position in the service, if there is one, and its last line."""
    return ": ".join(filter(None, [position_of(error), _last_line(error)]))


def _last_line(error: BaseException) -> str:
    """Such as "NameError: name 'Verson' is not defined. Did you mean: 'Version'?"."""
    return " ".join(list(traceback.TracebackException.from_exception(error).format_exception_only())[-1].split())
