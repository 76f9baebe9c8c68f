"""The operators that ``precompile`` knows by name: each in one entry, which says what it runs on, its widths and the
user's own call.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping

import torch

from ..compiler.language.reduction import REDUCTIONS
from ..ops.attention.api import attention, gat_attention, gatv2_attention
from ..ops.attention.edge_softmax import edge_softmax
from ..ops.grouped.api import gather_mm, segment_mm
from ..ops.grouped.segment_reduce import segment_reduce
from ..ops.message.api.sddmm import sddmm
from ..ops.message.api.spmm import spmm
from ..ops.relational.api import rgms
from ..structures.graph import Graph
from ..structures.relational.graph import RelGraph
from ..structures.segments import Segments
from .precompile_steps import KINDS, Operator, Width, widths_by_operator
from .tuning_tasks import OPS

DEFAULTS: dict[type, str] = {Graph: "sum", RelGraph: "rgms", Segments: "segment_mm"}
"""What is prepared on a structure where nobody says."""


def _pair(width: Width) -> tuple[int, int]:
    """(F_in, F_out)."""
    return (width, width) if isinstance(width, int) else width[:2]


def _messages():
    """``weighted_*``: a number for each edge times the features of its source. ``dot``: the dot product of both ends of
    each edge.
    """
    for name, of in OPS.items():
        if name == "dot":
            shapes, call = (lambda g, f: [(g.shape[0], f), (g.shape[1], f)]), sddmm
        elif name.startswith("weighted_"):
            shapes = lambda g, f: [(g.shape[1], f), (g.num_edges,)]
            call = functools.partial(spmm, reduce=name.removeprefix("weighted_"))
        else:
            shapes, call = (lambda g, f: [(g.shape[1], f)]), functools.partial(spmm, reduce=name)
        yield Operator(name, Graph, ("F",), "", shapes, call, of)


def _attentions():
    """Widths are (heads, features of a head), or features where operands have no dimension of heads."""

    def rows(count: int, width: Width) -> tuple[int, ...]:
        return (count, width) if isinstance(width, int) else (count, *width)

    def heads(count: int, width: Width) -> tuple[int, ...]:
        return rows(count, width)[:-1]

    def at_any_scale(g, *xs, **weight):
        # that of the width is a number in the kernel; another, as frameworks' layers give it, is an operand
        return attention(g, *xs, **weight) + attention(g, *xs, scale=1.0, **weight)

    operands = {
        "attention": (at_any_scale, lambda g, w: [rows(g.shape[0], w), rows(g.shape[1], w), rows(g.shape[1], w)]),
        "gat_attention": (
            gat_attention,
            lambda g, w: [heads(g.shape[0], w), heads(g.shape[1], w), rows(g.shape[1], w)],
        ),
        "gatv2_attention": (gatv2_attention, lambda g, w: [rows(g.shape[0], w), rows(g.shape[1], w), rows(0, w)[1:]]),
    }
    for name, (call, shapes) in operands.items():
        width = ("heads", "F"), "F for operands without heads"
        yield Operator(name, Graph, *width, shapes, call)
        yield Operator(
            f"weighted_{name}",
            Graph,
            *width,
            lambda g, w, shapes=shapes: [*shapes(g, w), heads(g.num_edges, w)],
            lambda g, *xs, call=call: call(g, *xs[:-1], edge_weight=xs[-1]),
        )
    yield Operator(
        "edge_softmax", Graph, ("heads",), "", lambda g, h: [(g.num_edges, h)], edge_softmax, transposes=False
    )


def _relational():
    """Matrices of all relations: full, with blocks on their diagonals, or of bases; summed or averaged; with weights of
    edges or not.
    """
    weights = {
        "": lambda r, f_in, f_out: [(r, f_in, f_out)],
        "_blocks": lambda r, f_in, f_out, b: [(r, b, f_in // b, f_out // b)],
        "_bases": lambda r, f_in, f_out, b: [(r, b), (b, f_in, f_out)],
    }
    for (kind, make), reduce, weighted in itertools.product(weights.items(), ("sum", "mean"), (False, True)):

        def shapes(g, width, make=make, weighted=weighted):
            numbers = (*_pair(width), *(width[2:] if isinstance(width, tuple) else ()))
            return [(g.shape[1], numbers[0]), *make(g.num_relations, *numbers), *[(g.num_edges,)] * weighted]

        def call(g, x, *rest, kind=kind, reduce=reduce, weighted=weighted):
            weight = rest[:2] if kind == "_bases" else rest[0]
            return rgms(g, x, weight, rest[-1] if weighted else None, reduce)

        name = f"{'weighted_' * weighted}rgms{kind}{'_mean' * (reduce == 'mean')}"
        width = ("F_in", "F_out", kind[1:]) if kind else ("F_in", "F_out")
        yield Operator(name, RelGraph, width, "" if kind else "F for both", shapes, call, divided=kind == "_blocks")


def _grouped():
    """Products by the matrix of each row's segment, and reductions of the rows of each."""
    matrices = ("F_in", "F_out"), "F for both"

    def shapes(s, width):
        f_in, f_out = _pair(width)
        return [(s.num_rows, f_in), (s.num_segments, f_in, f_out)]

    def gathered(s, a, b):
        # with the rows of a in their order, and in another one
        index = torch.arange(s.num_rows - 1, -1, -1, device=a.device)
        return gather_mm(a, b, s) + gather_mm(a, b, s, index)

    yield Operator("segment_mm", Segments, *matrices, shapes, lambda s, a, b: segment_mm(a, b, s))
    yield Operator("gather_mm", Segments, *matrices, shapes, gathered)
    for reduce in REDUCTIONS:
        yield Operator(
            f"segment_{reduce}",
            Segments,
            ("F",),
            "",
            lambda s, f: [(s.num_rows, f)],
            lambda s, x, reduce=reduce: segment_reduce(x, s, reduce),
        )


OPERATORS: dict[str, Operator] = {
    operator.name: operator for operator in itertools.chain(_messages(), _attentions(), _relational(), _grouped())
}


def operators_named(ops: str | Iterable[str]) -> tuple[Operator, ...]:
    """The operators of these names. Raises ValueError that quotes the first that is none, and lists those there are."""
    names = dict.fromkeys((ops,) if isinstance(ops, str) else ops)
    for name in names:
        if name not in OPERATORS:
            known = "; ".join(
                f"on {words}: {', '.join(o.name for o in OPERATORS.values() if o.on is kind)}"
                for kind, words in KINDS.items()
            )
            raise ValueError(f"unknown operator {name!r}: choose {known}")
    if not names:
        raise ValueError("ops names no operator")
    return tuple(OPERATORS[name] for name in names)


def requested(ops, features) -> dict[Operator, tuple[Width, ...]] | None:
    """What is to be prepared at which widths; None where neither says what: then that depends on the structure
    (``DEFAULTS``).

    Raises ValueError for a name or a width that is none.
    """
    if ops is None and not isinstance(features, Mapping):
        return None
    return widths_by_operator(features, operators_named(tuple(features) if ops is None else ops))


def kinds_of(ops, features) -> tuple[type, ...]:
    """What the operators run on that ``requested`` gives; a graph where nobody says. Raises ValueError for a name that
    is none.
    """
    if ops is None and not isinstance(features, Mapping):
        return (Graph,)
    return tuple(dict.fromkeys(operator.on for operator in operators_named(tuple(features) if ops is None else ops)))


def default_for(kind: type, features) -> dict[Operator, tuple[Width, ...]]:
    """What is prepared on structures of a kind where nobody says."""
    return widths_by_operator(features, operators_named(DEFAULTS[kind]))


__all__ = ["DEFAULTS", "OPERATORS", "default_for", "kinds_of", "operators_named", "requested"]
