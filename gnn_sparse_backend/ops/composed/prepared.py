"""What ``precompile`` and ``explain`` know of products of composed matrices."""

from __future__ import annotations

from ...formats.composed.decomposition import Decomposition
from ...formats.composed.spec import SEPARATOR
from ..core.prepared import Kind, Prepared, Width, prepares, structures
from . import aggregation as _offered  # noqa: F401  (with it a search knows of formats)
from .api import composed_linear, composed_sddmm, composed_spmm
from .operators import SDDMM, SPMM


def _name(parts: Decomposition) -> str:
    rows, columns = parts.shape
    return f"{rows:,} x {columns:,} in {SEPARATOR.join(map(str, parts.formats))}"


def _spmm(parts: Decomposition, width: Width) -> list[tuple[int, ...]]:
    return [(parts.nnz,), (parts.shape[1], int(width))]  # type: ignore[arg-type]


def _linear(parts: Decomposition, width: Width) -> list[tuple[int, ...]]:
    return [(parts.nnz,), (int(width), parts.shape[1])]  # type: ignore[arg-type]


def _sddmm(parts: Decomposition, width: Width) -> list[tuple[int, ...]]:
    return [(length, int(width)) for length in parts.shape]  # type: ignore[arg-type]


structures(
    Kind(Decomposition, "a gsb.formats.Decomposition", lambda parts: parts.nnz, _name, "composed_spmm"),
)
prepares(
    Prepared("composed_spmm", SPMM, Decomposition, ("F",), "", _spmm, composed_spmm),
    Prepared("composed_linear", SPMM, Decomposition, ("tokens",), "", _linear, composed_linear),
    Prepared("composed_sddmm", SDDMM, Decomposition, ("D",), "", _sddmm, composed_sddmm),
)
