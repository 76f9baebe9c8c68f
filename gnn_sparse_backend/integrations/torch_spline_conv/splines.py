"""``spline_basis``, ``spline_weighting`` and ``spline_conv``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ..core.substitutes.scripted import public
from ..torch_scatter import reductions

if TYPE_CHECKING:
    from ...ops.grouped import api as grouped
else:
    grouped = later(__name__, "...ops.grouped.api")

_public = public("torch_spline_conv")


@_public
def spline_basis(pseudo: Tensor, kernel_size: Tensor, is_open_spline: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """Return of each edge the B-splines that are not 0 there, (E, S), and the weights they belong to, (E, S) int64,
    where S is ``(degree + 1) ** D``, the first axis fastest.

    Args:
        pseudo: (E, D) coordinates from 0 to 1, to which gradients flow.
        kernel_size: (D,) int64, weights along each axis.
        is_open_spline: (D,) uint8 or bool; closed splines go round.
        degree: 1, 2 or 3.

    Raises ValueError for another degree, and for other shapes.
    """
    return basis(pseudo, kernel_size, is_open_spline, degree)


@_public
def spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, weight_index: Tensor) -> Tensor:
    """Return (E, F_out), the sum over s of ``basis[e, s] * x[e] @ weight[weight_index[e, s]]``. Gradients flow to all
    but the index.

    Args:
        x: (E, F_in); weight: (K, F_in, F_out); basis, weight_index: (E, S) as of `spline_basis`.

    Raises ValueError for other shapes and for an index out of range.
    """
    return weighted(x, weight, basis, weight_index)


@_public
def spline_conv(
    x: Tensor,
    edge_index: Tensor,
    pseudo: Tensor,
    weight: Tensor,
    kernel_size: Tensor,
    is_open_spline: Tensor,
    degree: int = 1,
    norm: bool = True,
    root_weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return (N, F_out): for each node the sum over its edges of what `spline_weighting` makes of the other end's
    features.

    Args:
        x: (N, F_in), or (N,).
        edge_index: (2, E) int64, the node that is summed for and the one that is read.
        pseudo, kernel_size, is_open_spline, degree: as of `spline_basis`; pseudo (E,) is of one axis.
        weight: (K, F_in, F_out).
        norm: divide by the number of edges.
        root_weight: (F_in, F_out) for the node's own features; bias: (F_out,).
    """
    x = x[:, None] if x.dim() == 1 else x
    pseudo = pseudo[:, None] if pseudo.dim() == 1 else pseudo
    row, col = edge_index[0], edge_index[1]
    messages = weighted(x[col], weight, *basis(pseudo, kernel_size, is_open_spline, degree))
    reduce = reductions.averaged if norm else reductions.summed
    out = reduce(messages, row, 0, None, x.shape[0])
    if root_weight is not None:
        out = out + x @ root_weight
    return out if bias is None else out + bias


def basis(pseudo: Tensor, kernel_size: Tensor, is_open: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """What `spline_basis` returns."""
    if degree not in _SPLINES:
        raise ValueError(f"spline_basis: degree must be 1, 2 or 3, got {degree}")
    if pseudo.dim() != 2 or kernel_size.shape != pseudo.shape[1:] or is_open.shape != pseudo.shape[1:]:
        raise ValueError(
            f"spline_basis: pseudo (E, D) wants (D,) sizes and (D,) is_open_spline, got {tuple(pseudo.shape)}, "
            f"{tuple(kernel_size.shape)} and {tuple(is_open.shape)}"
        )
    edges, axes = pseudo.shape
    places = pseudo * (kernel_size - degree * is_open.to(kernel_size.dtype)).to(pseudo.dtype)
    cells = places.detach().floor()
    splines = torch.stack(_SPLINES[degree](places - cells), -1)  # (E, D, degree + 1)
    reached = cells.long()[..., None] + torch.arange(degree + 1, device=pseudo.device)
    reached = reached.remainder(kernel_size[:, None])
    product, index = splines.new_ones(edges, 1), reached.new_zeros(edges, 1)
    for axis in range(axes):
        stride = int(kernel_size[:axis].prod())
        product = (splines[:, axis, :, None] * product[:, None]).flatten(1)
        index = (reached[:, axis, :, None] * stride + index[:, None]).flatten(1)
    return product, index


def weighted(x: Tensor, weight: Tensor, basis: Tensor, index: Tensor) -> Tensor:
    """What `spline_weighting` returns."""
    edges, splines = basis.shape
    if x.shape[0] != edges or index.shape != basis.shape or x.dim() != 2:
        raise ValueError(
            f"spline_weighting: x (E, F), basis (E, S) and weight_index (E, S) do not fit: {tuple(x.shape)}, "
            f"{tuple(basis.shape)} and {tuple(index.shape)}"
        )
    if not edges:
        return x.new_zeros(0, weight.shape[2]) + x.sum() * weight.sum()
    own = torch.arange(edges, device=x.device).repeat_interleave(splines)
    products = grouped.gather_mm(x, weight, index.flatten(), own).view(edges, splines, -1)
    return (basis[..., None] * products).sum(1)


def _linear(v: Tensor) -> tuple[Tensor, ...]:
    return 1 - v, v


def _quadratic(v: Tensor) -> tuple[Tensor, ...]:
    return 0.5 * v * v - v + 0.5, -v * v + v + 0.5, 0.5 * v * v


def _cubic(v: Tensor) -> tuple[Tensor, ...]:
    return (
        (1 - v) * (1 - v) * (1 - v) / 6,
        (3 * v * v * v - 6 * v * v + 4) / 6,
        (-3 * v * v * v + 3 * v * v + 3 * v + 1) / 6,
        v * v * v / 6,
    )


_SPLINES = {1: _linear, 2: _quadratic, 3: _cubic}
"""The splines of each degree that are not 0 at a distance from 0 to 1 behind a knot, those of lower knots first."""
