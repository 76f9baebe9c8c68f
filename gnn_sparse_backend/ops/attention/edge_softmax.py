"""``gsb.edge_softmax``: softmax of scores over the edges into each destination, or out of each source."""

from __future__ import annotations

from torch import Tensor

from ...runtime.devices import check_kernels
from ...structures.graph import Graph
from ..core.operands import check_graph, check_traced, check_written_out, is_plain
from ..core.partitioned import Partitioned, placed
from ..core.traced import traced_graph
from ..message.checks import check_choice
from .operators import check_edges, softmax_edges


@placed(e="scores", of_edges=True)
def edge_softmax(graph: Graph | Partitioned, scores: Tensor, norm_by: str = "dst") -> Tensor:
    """``out[e] = exp(scores[e]) / sum of exp(scores) over the edges with the same end``, for each feature apart.

    Args:
        graph: structure of shape (n_dst, n_src).
        scores: (E, ...) in the user's edge order, float32, float64, bfloat16 or float16, of any strides.
        norm_by: ``"dst"``: over the edges into each destination; ``"src"``: over those out of each source.

    Returns:
        (E, ...), contiguous, in the type of ``scores``. The maximum is subtracted first, and half types are computed in
        float32. Where scores of one end are all -inf, or hold a NaN or +inf, its weights are NaN. Gradients of any
        order. Autocast keeps the type; works under ``torch.compile``.

    Raises:
        TypeError: ``scores`` is not a dense floating tensor.
        ValueError: a shape or device does not fit the graph, or ``norm_by`` is unknown.
    """
    if isinstance(graph, Partitioned):
        return graph.call(edge_softmax, locals())
    check_graph("edge_softmax", graph)
    check_choice("edge_softmax", "norm_by", norm_by, ("dst", "src"))
    check_edges(graph, "scores", scores)
    if not is_plain(scores):
        check_traced("edge_softmax", ("scores",), (scores,), graph.device)
        structure = traced_graph(graph)
    else:
        check_written_out("edge_softmax", "scores", scores)
        check_kernels("edge_softmax", graph.device)
        structure = graph
    return softmax_edges(structure if norm_by == "dst" else structure.transpose(), scores)
