"""What ``precompile`` and ``explain`` know of relational products.

Matrices of all relations: full, with blocks on their diagonals, or of bases; summed or averaged; with weights of edges
or not.
"""

from __future__ import annotations

import itertools

import torch

from ...compiler.own_schedules import describes
from ...structures.relational.graph import RelGraph
from ..core.prepared import Kind, Prepared, Width, pair, prepares, structures
from ..message.flat import few_of_reduction
from .api import rgms
from .executables_cpu import content_of
from .explain import explain_relational
from .operators import BASIS_PRODUCT, PRODUCT
from .programs.rgms import RgmsSpec

structures(
    Kind(
        RelGraph,
        "a gsb.RelGraph, or a graph with edge types",
        lambda rel: rel.num_edges,
        lambda rel: f"{rel.shape[0]:,} x {rel.shape[1]:,}, {rel.num_edges:,} edges, {rel.num_relations:,} relations",
        "rgms",
        lambda rel: (content_of(rel),),
    )
)
_MATRICES = {
    "": lambda r, f_in, f_out: [(r, f_in, f_out)],
    "_blocks": lambda r, f_in, f_out, b: [(r, b, f_in // b, f_out // b)],
    "_bases": lambda r, f_in, f_out, b: [(r, b), (b, f_in, f_out)],
}


def _call_of(kind: str, reduce: str, weighted: bool) -> Prepared:
    def shapes(rel: RelGraph, width: Width) -> list[tuple[int, ...]]:
        numbers = (*pair(width), *(width[2:] if isinstance(width, tuple) else ()))
        matrices = _MATRICES[kind](rel.num_relations, *numbers)
        return [(rel.shape[1], numbers[0]), *matrices, *[(rel.num_edges,)] * weighted]

    def call(rel: RelGraph, x, *rest):
        weight = rest[:2] if kind == "_bases" else rest[0]
        return rgms(rel, x, weight, rest[-1] if weighted else None, reduce)

    def few(width: Width, dtype: torch.dtype):
        scaled = weighted or reduce == "mean"
        message, places = ("mul(x0, x1)", ("column", "edge")) if scaled else ("x0", ("column",))
        return () if kind == "_blocks" else few_of_reduction(message, places, "sum", pair(width)[1], dtype)

    return Prepared(
        f"{'weighted_' * weighted}rgms{kind}{'_mean' * (reduce == 'mean')}",
        BASIS_PRODUCT if kind == "_bases" else PRODUCT,
        RelGraph,
        ("F_in", "F_out", kind[1:]) if kind else ("F_in", "F_out"),
        "" if kind else "F for both",
        shapes,
        call,
        divided=kind == "_blocks",
        explain=explain_relational if (kind, reduce, weighted) == ("", "sum", False) else None,
        few=few,
        scheduled=("rgms",),
    )


prepares(*itertools.starmap(_call_of, itertools.product(_MATRICES, ("sum", "mean"), (False, True))))


@describes(RgmsSpec, "rgms")
def _relational(spec: RgmsSpec) -> tuple[tuple[str, ...], str, tuple[int, int], str]:
    return ("rgms",), spec.dtype, (spec.in_features, spec.out_features), "sum"
