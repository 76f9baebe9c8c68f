"""What ``precompile`` and ``explain`` know of messages: copies and weighted copies by every reduction, linear
maps of sums and means, and dots.
"""

from __future__ import annotations

import functools

from ...compiler.language.reduction import REDUCTIONS
from ...structures.graph import Graph
from ..core.plans import structure_fingerprint
from ..core.prepared import Kind, Prepared, pair, prepares, structures
from .api.sddmm import sddmm
from .api.spmm import spmm
from .api.spmm_linear import REDUCES, spmm_linear
from .flat import few_of_reduction
from .linear_order import explain_linear
from .message_op import message_op
from .operators import AGGREGATE, EDGE_MAP

structures(
    Kind(
        Graph,
        "a graph",
        lambda graph: graph.num_edges,
        lambda graph: f"{graph.shape[0]:,} x {graph.shape[1]:,}, {graph.num_edges:,} edges",
        "sum",
        lambda graph: (structure_fingerprint(graph), structure_fingerprint(graph.transpose())),
    )
)
_COPY = "", "x0", ("column",), lambda graph, f: [(graph.shape[1], f)]
_WEIGHTED = "weighted_", "mul(x1, x0)", ("column", "edge"), lambda graph, f: [(graph.shape[1], f), (graph.num_edges,)]
for _name, _reduction in REDUCTIONS.items():
    _ties = "even" if _reduction.chooses else None
    _call = functools.partial(spmm, reduce=_name)
    for _prefix, _message, _places, _shapes in (_COPY, _WEIGHTED):
        _form = message_op(_message, _places, _name, _ties)
        _few = functools.partial(few_of_reduction, _message, _places, _name)
        prepares(Prepared(_prefix + _name, AGGREGATE, Graph, ("F",), "", _shapes, _call, _form, few=_few))
for _reduction in REDUCES:
    _name = "linear" if _reduction == "sum" else f"linear_{_reduction}"
    prepares(
        Prepared(
            _name,
            AGGREGATE,
            Graph,
            ("F_in", "F_out"),
            "F for both",
            lambda graph, width: [(graph.shape[1], pair(width)[0]), pair(width)[::-1]],
            functools.partial(spmm_linear, reduce=_reduction),
            explain=functools.partial(explain_linear, _name),
        )
    )
prepares(
    Prepared(
        "dot",
        EDGE_MAP,
        Graph,
        ("F",),
        "",
        lambda graph, f: [(graph.shape[0], f), (graph.shape[1], f)],
        sddmm,
        message_op("mul(x0, x1)", ("row", "column")),
    )
)
