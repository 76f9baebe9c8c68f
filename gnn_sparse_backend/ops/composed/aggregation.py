"""Sums over the edges of a graph by the formats of its matrix: what a search may find faster than any order of rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...compiler.codegen import host_target
from ...compiler.language.types import FLOATS
from ...compiler.own_schedules import is_scheduled
from ...formats.composed.decompose import FILL, one_side
from ...formats.composed.decomposition import Decomposition
from ...formats.composed.fills import stripes
from ...formats.composed.spec import SEPARATOR, FormatSpec, parse_format, parse_formats, readable
from ...planner.candidates import rule_plan
from ...planner.composed import FormatsPlan, PieceCount, predicted_on_graph, problem_of
from ...planner.plan import Plan
from ...planner.problem import Problem
from ...runtime.layout import compact
from ...runtime.memory import empty
from ...structures.derived import fact
from ..core.executable import builds
from ..core.last_run import note
from ..core.plans import structure_fingerprint
from ..message.executables.aggregation import Aggregation
from ..message.programs.aggregate import AggregateSpec
from ..message.programs.message import arg, commuted
from .candidates import CANDIDATES, counted, named, registered, tiles
from .executables import WHOLE_ROWS, is_masked, product_for

BESIDE = ("hyb(1, 3)",)
"""What is tried of graphs beside ``CANDIDATES``."""
STRIPE, SAMPLED = 32, 1 << 20
"""Rows that are looked at together, whose blocks are those of the whole graph; and edges that are looked at, about."""
_PRODUCT = commuted(arg(0) * arg(1))
_counts = shared("formats of graphs", 256)


@builds(AggregateSpec, FormatsPlan)
class InFormats(Aggregation):
    """A sum of rows of one operand, which numbers at the edges may weight, as a product of a composed matrix."""

    def __init__(self, spec: AggregateSpec, plan: FormatsPlan) -> None:
        super().__init__(spec, plan)
        self.formats = parse_formats(plan.formats.split(SEPARATOR))
        self.x = self.places.index("column")
        self.weight = self.places.index("edge") if "edge" in self.places else None

    @classmethod
    def refuses(cls, spec: AggregateSpec, plan: FormatsPlan) -> str | None:
        if not readable(plan.formats):
            return f"the formats {plan.formats} are not registered, or with another definition"
        return refuses_product(spec)

    @classmethod
    def offered(cls, spec: AggregateSpec, graph, problem: Problem) -> Mapping[Plan, float]:
        if refuses_product(spec) is not None:
            return {}
        own = problem_of(graph.shape, graph.num_edges, problem.features, problem.dtype, problem.threads)
        rule, processor = rule_plan(problem), host_target()
        found: dict[Plan, float] = {}
        for words, pieces in stored_of(graph).items():
            if words == "csr" and problem.features <= WHOLE_ROWS:
                continue  # rows, by plans of their own
            seconds = predicted_on_graph(own, pieces, processor, "edge" in spec.places)
            found |= {FormatsPlan(words, tile, otherwise=rule): seconds for tile in tiles(words, own)}
        return found

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        x, (out,) = operands[self.x], results
        assert x is not None
        parts = in_formats(graph, self.formats)
        weight = None if self.weight is None else operands[self.weight]
        values = ones(parts, x.dtype) if weight is None else packed(parts, compact(weight).view(-1))
        features = out.shape[1]
        x = compact(x).view(1, -1, features)
        product = product_for(parts, 1, features, x.dtype, self.plan.tile, is_masked(parts, x))
        whole = (product.rows, product.width, product.result) == (*out.shape, out.dtype)
        y = out[None] if whole else empty(x, 1, product.rows, product.width, dtype=product.result)
        arguments = product.arguments(values[None], x, y)
        (kernel,) = product.launch.kernels
        self._kernels[kernel] = kernel
        note(self, "")
        kernel.entry(*arguments)
        if not whole:
            out.copy_(y[0, : out.shape[0], :features])


def refuses_product(spec: AggregateSpec) -> str | None:
    """Why an aggregation is no product of a matrix, or None where it is one."""
    weighted = spec.message != arg(0)
    if spec.reduce != "sum" or spec.dtype not in FLOATS or spec.keep or spec.inner:
        return "a product of a matrix is a sum of floating numbers"
    if weighted and (commuted(spec.message) != _PRODUCT or set(spec.places) != {"column", "edge"}):
        return "a product of a matrix has rows of sources, each by the number of an edge at most"
    if not weighted and spec.places != ("column",):
        return "a product of a matrix has rows of sources"
    widths = {"column": spec.features, "edge": 1}
    if any(operand.dtype != spec.dtype or operand.width != widths[operand.at] for operand in spec.operands):
        return "a product of a matrix has one number for an edge, of the type of the features"
    return "a schedule of the user is for its rows" if is_scheduled(spec) else None


def stored_of(graph) -> dict[str, list[PieceCount]]:
    """What each candidate stores of a graph, by its words: of a large one from some of its rows, evenly spaced, where
    formats are this package's.
    """
    users = named(registered())
    key = structure_fingerprint(graph), *users
    found = _counts.get(key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    candidates = named((*CANDIDATES, *BESIDE)) | users
    indptr, indices, rows = graph.indptr, graph.indices, graph.shape[0]
    if not users:
        indptr, indices = stripes(indptr, indices, STRIPE, SAMPLED)
        rows = indptr.numel() - 1
    _, pieces = counted(indptr, indices, (rows, graph.shape[1]), candidates)
    share = graph.num_edges / max(indices.numel(), 1)
    scaled = {
        words: [PieceCount(each.side, round(each.slots * share), each.alike) for each in own]
        for words, own in pieces.items()
    }
    return _counts.keep(key, scaled)  # type: ignore[no-any-return]


@fact
def in_formats(graph, formats: tuple[FormatSpec, ...]) -> Decomposition:
    """The graph in these formats, and in CSR what they leave."""
    rest = (parse_format("csr"),)
    return one_side(graph.indptr, graph.indices, graph.edge_ids, graph.shape, formats, FILL, rest)


@fact
def ones(parts: Decomposition, dtype: torch.dtype) -> Tensor:
    """(num_slots,) how many edges each slot is of."""
    return parts.pack(torch.ones(parts.nnz, dtype=dtype))


def packed(parts: Decomposition, weight: Tensor) -> Tensor:
    """(num_slots,) the numbers of the edges, (edges,), where each has its slot; those of edges that repeat are
    summed.
    """
    if parts.nnz != parts.indices.numel():
        return parts.pack(weight)
    if parts.padding:
        weight = torch.cat([weight, weight.new_zeros(1)])
    return weight.index_select(0, edge_of_slot(parts))


@fact
def edge_of_slot(parts: Decomposition) -> Tensor:
    """(num_slots,) the number of the edge in each slot, and how many there are at padding, in the index type; of edges
    that do not repeat.
    """
    if parts.coordinate is None:
        return parts.inverse.to(parts.indices.dtype)
    edges = parts.coordinate.new_full((parts.nnz + 1,), parts.nnz)
    edges[parts.coordinate] = torch.arange(parts.nnz)
    return edges.index_select(0, parts.inverse).to(parts.indices.dtype)
