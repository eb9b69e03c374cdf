"""The lines of a service at which it declares something: `mistakes` shows them."""

import os
import sys
from pathlib import Path

ENGINE = os.path.join(Path(__file__).parent, "")
Position = tuple[str, int]  # a file and the number of a line


class DeclarationError(ValueError):
    """A declaration that does not fit to others, which is known after it was made: it was at this position."""

    def __init__(self, text: str, position: Position) -> None:
        super().__init__(text)
        self.position = position


def calling_line() -> Position:
    """The line of the service that calls the engine."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith((ENGINE, "<")):  # dataclasses make code without a file
        frame = frame.f_back
    return os.path.abspath(frame.f_code.co_filename), frame.f_lineno
