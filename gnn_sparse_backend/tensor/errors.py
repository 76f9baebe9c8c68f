"""What the tensor algebra raises, all with the words of the user in it and what to write."""

from __future__ import annotations


class FormatError(ValueError):
    """A format is not well formed, or an array does not fit it."""


class NotationError(ValueError):
    """An expression is not well formed; the text shows where.

    Attributes:
        text: the expression.
        at: the first character that is wrong.
    """

    def __init__(self, reason: str, text: str, at: int, length: int = 1) -> None:
        super().__init__(f"{reason}\n    {text}\n    {' ' * at}{'^' * max(length, 1)}")
        self.text, self.at = text, at


class CoIterationError(NotImplementedError):
    """The sparse operands of an expression cannot be visited together in any order of its indices."""


class ScheduleError(ValueError):
    """A command does not apply to a statement; the text quotes its variables and says what to do."""
