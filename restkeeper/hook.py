"""The one kind of hook: functions that features add, and that are called in their order."""

from typing import Generic, TypeVar

F = TypeVar("F")


class Hook(Generic[F]):
    """Functions in the order in which they are called: by their stages, and in one of them as they were added."""

    def __init__(self) -> None:
        self.functions: tuple[F, ...] = ()
        self._stages: list[int] = []

    def add(self, *functions: F, stage: int = 0) -> None:
        """Call functions after those of their stage, and before those of later ones."""
        index = sum(other <= stage for other in self._stages)
        self._stages[index:index] = [stage] * len(functions)
        self.functions = (*self.functions[:index], *functions, *self.functions[index:])

    def remove(self, function: F) -> None:
        """Call a function no more. Raises ValueError if it is not called."""
        index = self.functions.index(function)
        del self._stages[index]
        self.functions = (*self.functions[:index], *self.functions[index + 1 :])
