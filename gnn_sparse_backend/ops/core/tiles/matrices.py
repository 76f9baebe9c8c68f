"""Matrices of F_in x F_out that programs multiply by, as they are stored: row by row, or column by column.

The gradient of a product multiplies by the same matrices, transposed. A program that takes either layout takes them
where they are, and nothing copies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ....compiler.language.axes import Axis
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr

_Place = TypeVar("_Place", Axis, Expr)


class Matrices:
    """The parameter ``W`` of a program: (*leading, F_in, F_out), or (*leading, F_out, F_in) where ``by_columns``."""

    def __init__(
        self,
        p: ProgramBuilder,
        leading: tuple[Axis, ...],
        in_features: Axis,
        out_features: Axis,
        by_columns: bool,
        dtype: str,
    ) -> None:
        self.by_columns = by_columns
        self.stored = p.buffer("W", (*leading, *self._as_stored(in_features, out_features)), dtype)

    def __getitem__(self, at: tuple[Expr, ...]) -> Callable[[Expr, Expr], Expr]:
        """Return right(column, term), which gives the elements of the matrix ``at``."""
        return lambda column, term: self.stored[(*at, *self._as_stored(term, column))]

    def _as_stored(self, term: _Place, column: _Place) -> tuple[_Place, _Place]:
        return (column, term) if self.by_columns else (term, column)
