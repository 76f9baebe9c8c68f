"""Axes of coordinate space: dense or sparse, fixed or variable (SparseTIR, section 3.1, figure 5).

An axis is a value. Axes form a forest: a root is dense-fixed, every other axis names its parent. The index
arrays of a variable or sparse axis (`indptr`, `indices`) are run-time inputs of the program and are known here by name.

A *position* counts the stored elements of an axis under one position of its parent; a *coordinate* is the
index that the element stands for. In a dense axis they are equal. In a sparse axis the coordinate of position p
is `indices[offset + p]`.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from ...frozen import dataclass
from .types import INDEX_DTYPES

KINDS = ("dense_fixed", "dense_variable", "sparse_fixed", "sparse_variable")
ROLES = ("lane", "warp", "grid", "part", "turn")
"""What a team of a GPU makes of the loop over an axis (`schedules.teams`): its lanes, the warps of its block, a second
dimension of the grid; a vector, or a loop that is unrolled.
"""


class StageIError(ValueError):
    """A program of coordinate space is not well formed, or a transformation does not apply to it."""


def refuse(where: str, reason: str | None) -> None:
    """Raise StageIError, which says where and why, if there is a reason."""
    if reason:
        raise StageIError(f"{where} {reason}")


@dataclass(frozen=True)
class Size:
    """A run-time integer parameter of a program (a number of rows, columns or non-zeros)."""

    name: str

    def __str__(self) -> str:
        return self.name


Extent: TypeAlias = int | Size


@dataclass(frozen=True)
class Axis:
    """One axis. Made by `dense_fixed`, `dense_variable`, `sparse_fixed`, `sparse_variable`.

    Attributes:
        length: coordinates lie in [0, length).
        nnz: elements stored over all parent positions (variable axes).
        nnz_cols: elements stored per parent position (sparse-fixed axes).
        sorted: the coordinates under one parent position ascend, so a search may be binary.
        unique: no coordinate occurs twice under one parent position, so a spatial loop writes each only once.
        padded: a negative coordinate marks a slot that holds no element; iterations skip it and its value is
            never read, so that an Inf or NaN elsewhere cannot reach a row through its padding.
        role: one of `ROLES`, of a dense-fixed axis; "" of an ordinary one.
    """

    name: str
    kind: str
    length: Extent
    parent: Axis | None = None
    nnz: Extent | None = None
    nnz_cols: Extent | None = None
    indptr: str | None = None
    indices: str | None = None
    index_dtype: str = "int32"
    sorted: bool = True
    unique: bool = True
    padded: bool = False
    role: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise StageIError(f"axis {self.name!r}: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.index_dtype not in INDEX_DTYPES:
            raise StageIError(f"axis {self.name!r}: index type {self.index_dtype!r} is not int32 or int64")
        if self.role and (self.role not in ROLES or self.kind != "dense_fixed"):
            raise StageIError(
                f"axis {self.name!r}: role {self.role!r} is not one of {', '.join(ROLES)}, or it is not dense-fixed"
            )
        if self.kind != "dense_fixed" and self.parent is None:
            raise StageIError(f"axis {self.name!r}: a {self.kind} axis needs a parent axis; roots are dense_fixed")

    @property
    def is_sparse(self) -> bool:
        return self.kind.startswith("sparse")

    @property
    def is_variable(self) -> bool:
        return self.kind.endswith("variable")

    @property
    def static_length(self) -> int:
        """The length of an axis that has no run-time size."""
        if isinstance(self.length, Size):
            raise StageIError(f"axis {self.name!r}: its length {self.length} is known at run time alone")
        return self.length

    @property
    def stored(self) -> Extent:
        """`nnz` of a variable axis, `nnz_cols` of a sparse-fixed one."""
        stored = self.nnz if self.is_variable else self.nnz_cols
        assert stored is not None
        return stored

    @property
    def root(self) -> Axis:
        return self if self.parent is None else self.parent.root

    @property
    def chain(self) -> tuple[Axis, ...]:
        """The axes from the root down to this one."""
        return (() if self.parent is None else self.parent.chain) + (self,)

    def __str__(self) -> str:
        return self.name


_Part = TypeVar("_Part")


def given(part: _Part | None) -> _Part:
    """A part of an axis that every axis of its kind has."""
    assert part is not None
    return part


def dense_fixed(name: str, length: Extent, role: str = "") -> Axis:
    """Coordinates 0 .. length-1, all stored. role: as of `Axis`."""
    return Axis(name, "dense_fixed", length, role=role)


def dense_variable(
    name: str, parent: Axis, extent: tuple[Extent, Extent], indptr: str, index_dtype: str = "int32"
) -> Axis:
    """Under parent position p, coordinates 0 .. indptr[p+1]-indptr[p]-1, all stored (a ragged axis).

    extent: (length, nnz), the largest length and the total number of elements.
    """
    length, nnz = extent
    return Axis(name, "dense_variable", length, parent, nnz=nnz, indptr=indptr, index_dtype=index_dtype)


def sparse_fixed(
    name: str,
    parent: Axis,
    extent: tuple[Extent, Extent],
    indices: str,
    index_dtype: str = "int32",
    **marks: Any,
) -> Axis:
    """Under each parent position, `nnz_cols` slots with coordinates in `indices` (ELL). extent: (length, nnz_cols).

    marks: `sorted`, `unique`, `padded`, as of `Axis`.
    """
    length, nnz_cols = extent
    return Axis(name, "sparse_fixed", length, parent, None, nnz_cols, None, indices, index_dtype, **marks)


def sparse_variable(
    name: str,
    parent: Axis,
    extent: tuple[Extent, Extent],
    arrays: tuple[str, str],
    index_dtype: str = "int32",
    **marks: Any,
) -> Axis:
    """Under parent position p, the coordinates indices[indptr[p]:indptr[p+1]] (CSR). extent: (length, nnz).

    marks: `sorted`, `unique`, as of `Axis`.
    """
    length, nnz = extent
    indptr, indices = arrays
    return Axis(name, "sparse_variable", length, parent, nnz, None, indptr, indices, index_dtype, **marks)
