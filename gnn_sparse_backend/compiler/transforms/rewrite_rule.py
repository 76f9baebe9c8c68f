"""How a part of a sparse buffer is stored in a new format, as `decompose_format` is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...frozen import dataclass
from ..language.axes import Axis, Size
from ..language.expr import ExprLike
from ..language.program import Buffer

IndexMap: TypeAlias = Callable[..., tuple[ExprLike, ...]]
"""Coordinates to coordinates, one argument for each; on expressions."""


@dataclass(frozen=True)
class FormatRewriteRule:
    """How a part of the old buffers is stored in a new format.

    Attributes:
        name: suffix of the new buffers and iterations.
        sizes, axes: what the new format adds to the program, parents first.
        buffers: names of the old buffers, which all stand on `axes_before`.
        axes_before, axes_after: names of the old and new axes.
        axis_map: for each old axis, the new ones that take its place where it is iterated over; the kind is inherited.
        index_map: old coordinates to new ones, on expressions; None where index arrays alone know.
        inverse_index_map: new coordinates to old ones, on expressions; it must undo ``index_map``.
        arrays: index arrays of the format beside those of its axes, which `inverse_index_map` reads.
        masked: the format stores elements that are no non-zeros (a block). A mask beside the values tells them apart,
            so that their zeros never meet an infinity.
        whole: every row is visited, once, and in it all of its elements of this format: passes over rows may stand on
            the rule's own axes.
    """

    name: str
    sizes: tuple[Size, ...]
    axes: tuple[Axis, ...]
    buffers: tuple[str, ...]
    axes_before: tuple[str, ...]
    axes_after: tuple[str, ...]
    axis_map: dict[str, tuple[str, ...]]
    index_map: IndexMap | None
    inverse_index_map: IndexMap
    arrays: tuple[Buffer, ...] = ()
    masked: bool = False
    whole: bool = False
