"""Stage II: position space, a TVM function of blocks and the table of axes beside it."""

from .function import PositionFunction

__all__ = ["PositionFunction"]
