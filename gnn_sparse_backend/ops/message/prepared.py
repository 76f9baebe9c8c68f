"""What ``precompile`` and ``explain`` know of messages: copies and weighted copies by every reduction, linear
maps of sums and means, and dots.
"""

from __future__ import annotations

import functools

from ...compiler.language.reduction import REDUCTIONS
from ...compiler.own_schedules import describes
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
from .programs.aggregate import AggregateSpec
from .programs.edge_map import EdgeMapSpec
from .programs.message import arg, commuted

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
        _also = _prefix + _name, "spmm", "aggregate"
        prepares(Prepared(_also[0], AGGREGATE, Graph, ("F",), "", _shapes, _call, _form, few=_few, scheduled=_also))
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
            scheduled=(_reduction, "spmm", "aggregate"),
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
        scheduled=("dot", "sddmm", "edge_map"),
    )
)
_PRODUCT = commuted(arg(0) * arg(1))


@describes(
    AggregateSpec, "spmm", "aggregate", *(prefix + name for prefix in (_COPY[0], _WEIGHTED[0]) for name in REDUCTIONS)
)
def _aggregation(spec: AggregateSpec) -> tuple[tuple[str, ...], str, int, str]:
    """A copy of a column, or its product with a number of the edge, has the names that it is prepared by."""
    copied, product = spec.message == arg(0), commuted(spec.message) == _PRODUCT
    weighted = product and set(spec.places) == {"column", "edge"}
    prefix = _WEIGHTED[0] if weighted else _COPY[0]
    own = (prefix + spec.reduce, "spmm") if weighted or (copied and spec.places == ("column",)) else ()
    return (*own, "aggregate"), spec.dtype, spec.features, spec.reduce


@describes(EdgeMapSpec, "dot", "sddmm", "edge_map")
def _map(spec: EdgeMapSpec) -> tuple[tuple[str, ...], str, int, str]:
    """A product summed over features is a dot of both ends."""
    places = {operand.at for operand in spec.operands}
    dots = commuted(spec.message) == _PRODUCT and places == {"row", "column"} and any(spec.reduced)
    return (*(("dot", "sddmm") if dots else ()), "edge_map"), spec.dtype, spec.width * spec.terms, ""
