"""What ``precompile`` knows of attention. Widths are (heads, features of a head), or features without heads."""

from __future__ import annotations

import functools

from ...compiler.own_schedules import describes
from ...structures.graph import Graph
from ..core.prepared import Prepared, Width, prepares
from .api import attention, gat_attention, gatv2_attention
from .edge_softmax import edge_softmax
from .few import few_of_attention, few_of_softmax
from .operators import ATTEND, EDGE_SOFTMAX
from .programs.attention import AttentionSpec
from .programs.attention_gradient import GradientSpec
from .programs.edge_softmax import EdgeSoftmaxSpec
from .programs.sums import SumsSpec


def _rows(count: int, width: Width) -> tuple[int, ...]:
    return (count, width) if isinstance(width, int) else (count, *width)


def _heads(count: int, width: Width) -> tuple[int, ...]:
    return _rows(count, width)[:-1]


def _at_any_scale(graph, *operands, **weight):
    # that of the width is a number in the kernel; another, as frameworks' layers give it, is an operand
    return attention(graph, *operands, **weight) + attention(graph, *operands, scale=1.0, **weight)


_CALLS = {
    "attention": (_at_any_scale, lambda g, w: [_rows(g.shape[0], w), _rows(g.shape[1], w), _rows(g.shape[1], w)]),
    "gat_attention": (
        gat_attention,
        lambda g, w: [_heads(g.shape[0], w), _heads(g.shape[1], w), _rows(g.shape[1], w)],
    ),
    "gatv2_attention": (gatv2_attention, lambda g, w: [_rows(g.shape[0], w), _rows(g.shape[1], w), _rows(0, w)[1:]]),
}
for _name, (_call, _shapes) in _CALLS.items():
    _width = ("heads", "F"), "F for operands without heads"
    prepares(
        Prepared(
            _name,
            ATTEND,
            Graph,
            *_width,
            _shapes,
            _call,
            few=functools.partial(few_of_attention, _name),
            scheduled=("attention",),
        ),
        Prepared(
            f"weighted_{_name}",
            ATTEND,
            Graph,
            *_width,
            lambda g, w, shapes=_shapes: [*shapes(g, w), _heads(g.num_edges, w)],
            lambda g, *operands, call=_call: call(g, *operands[:-1], edge_weight=operands[-1]),
            scheduled=("attention",),
        ),
    )
prepares(
    Prepared(
        "edge_softmax",
        EDGE_SOFTMAX,
        Graph,
        ("heads",),
        "",
        lambda g, h: [(g.num_edges, h)],
        edge_softmax,
        transposes=False,
        few=few_of_softmax,
        scheduled=("edge_softmax",),
    )
)


@describes(AttentionSpec, "attention")
def _forward(spec: AttentionSpec) -> tuple[tuple[str, ...], str, int, str]:
    return ("attention",), spec.dtype, spec.features, ""


@describes(GradientSpec, "attention")
def _gradient(spec: GradientSpec) -> tuple[tuple[str, ...], str, int, str]:
    return ("attention",), spec.attention.dtype, spec.attention.features, ""


@describes(SumsSpec, "attention")
def _sums(spec: SumsSpec) -> tuple[tuple[str, ...], str, int, str]:
    return ("attention",), spec.outputs[0].dtype, sum(output.features for output in spec.outputs), "sum"


@describes(EdgeSoftmaxSpec, "edge_softmax")
def _softmax(spec: EdgeSoftmaxSpec) -> tuple[tuple[str, ...], str, int, str]:
    return ("edge_softmax",), spec.dtype, spec.width, ""
