"""``gsb.spmm_linear``: a linear map of an aggregation, in whichever order costs less."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import linear

from ....structures.graph import Graph
from ...core.operands import check_dense, check_device, check_features, check_graph, check_rows, common_type
from ..checks import check_choice
from ..linear_order import maps_first, needed_gradients
from ..sparse_rows import mapped_by_nonzeros
from .spmm import spmm

REDUCES = ("sum", "mean")
"""The reductions that a linear map may go before."""


def spmm_linear(
    graph: Graph,
    x: Tensor,
    matrix: Tensor,
    bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduce: str = "sum",
) -> Tensor:
    """``linear(spmm(graph, x, weight, reduce), matrix, bias)``, whose two products are made in the cheaper order.

    ``(A X) W`` aggregates ``F_in`` features and multiplies a row for every destination, ``A (X W)`` aggregates
    ``F_out`` features and multiplies a row for every source. The gradients go in the same order, and those that are
    needed count.
    ``gsb.explain(graph, "linear", (F_in, F_out))`` says which it is and what either costs. Features that stay as they
    are, and are mostly zeros, are mapped by their non-zeros (`gsb.linear`).

    Args:
        graph: structure of shape (n_dst, n_src).
        x: (n_src, F_in) features in float32, float64, bfloat16 or float16.
        matrix: (F_out, F_in), as ``torch.nn.Linear`` has its weight, in the type of ``x``.
        bias: (F_out,) or None; added once to every destination, those without edges too.
        weight: None for ones, or (E,) a number for each edge.
        reduce: ``"sum"`` or ``"mean"``.

    Returns:
        (n_dst, F_out) in the type of ``x``. The two orders differ by rounding alone.

    Raises:
        TypeError, ValueError: as `spmm`; ``x`` is no matrix, or ``matrix`` does not fit it.
    """
    check_graph("spmm_linear", graph)
    check_choice("spmm_linear", "reduce", reduce, REDUCES)
    check_features("spmm_linear", "x", x)
    given = {"x": x, "matrix": matrix}
    if bias is not None:
        given["bias"] = bias
    for name in list(given)[1:]:
        check_dense("spmm_linear", name, given[name])
        check_device("spmm_linear", name, given[name], graph)
    if x.dim() != 2 or matrix.dim() != 2 or matrix.shape[1] != x.shape[1]:
        raise ValueError(
            "spmm_linear: x must have shape (n_src, F_in) and matrix (F_out, F_in), got "
            f"{tuple(x.shape)} and {tuple(matrix.shape)}"
        )
    if bias is not None and bias.shape != matrix.shape[:1]:
        raise ValueError(f"spmm_linear: bias must have shape ({matrix.shape[0]},), got {tuple(bias.shape)}")
    check_rows("spmm_linear", "x", x, graph.shape[1], "source", graph)
    x, matrix, *rest = common_type("spmm_linear", tuple(given), *given.values())
    if bias is not None:
        (bias,) = rest
    if weight is not None:
        check_dense("spmm_linear", "weight", weight)
    needed = needed_gradients(x, matrix, weight)
    if maps_first(*graph.shape, graph.num_edges, x.shape[1], matrix.shape[0], x.itemsize, needed=needed):
        mapped = mapped_by_nonzeros(x, matrix)
        out = spmm(graph, linear(x, matrix) if mapped is None else mapped, weight, reduce)
        return out if bias is None else out + bias
    return linear(spmm(graph, x, weight, reduce), matrix, bias)
