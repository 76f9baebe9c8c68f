"""``gsb.sddmm``: dot products of destination and source features, sampled at the edges."""

from __future__ import annotations

from torch import Tensor

from ....structures.graph import Graph
from ...core.operands import check_features, check_graph, check_traced, common_type, is_plain
from ...core.partitioned import Partitioned, placed
from ...core.traced import traced_graph
from ..checks import check_message_rows
from ..products import SDDMM, sddmm_of


@placed(u="v", v="u", of_edges=True)
def sddmm(graph: Graph | Partitioned, u: Tensor, v: Tensor) -> Tensor:
    """``out[e] = dot(u[dst(e)], v[src(e)])`` for every edge, in the user's edge order.

    Args:
        graph: structure of shape (n_dst, n_src).
        u: (n_dst, F) or (n_dst, H, D) destination features in float32, float64, bfloat16 or float16, of any strides.
        v: (n_src, F) or (n_src, H, D) source features, same width, heads and type.

    Returns:
        (E,) or (E, H) in the type of the operands. Half types are accumulated in float32. Gradients of any order flow
        to ``u`` and ``v``. Autocast and ``torch.compile`` as in ``spmm``.

    Raises:
        TypeError: an operand is not a dense floating tensor, or types differ.
        ValueError: a shape or device does not fit the graph or the other operand.
    """
    if isinstance(graph, Partitioned):
        return graph.call(sddmm, locals())
    check_graph("sddmm", graph)
    check_features("sddmm", "u", u)
    check_features("sddmm", "v", v)
    if u.shape[1:] != v.shape[1:]:
        raise ValueError(
            f"sddmm: u and v must agree but for their first dimension, got {tuple(u.shape)} and {tuple(v.shape)}"
        )
    u, v = common_type("sddmm", ("u", "v"), u, v)
    if not is_plain(u, v):
        check_traced("sddmm", ("u", "v"), (u, v), graph.device)
        return SDDMM(traced_graph(graph), (u, v), (False,))
    check_message_rows("sddmm", graph, ("u", "v"), ("row", "column"), (u, v))
    return sddmm_of(graph, u, v)
