"""The operators whose plans are measured, by name, and what each runs forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import torch
from torch import Tensor

from ..frozen import dataclass
from ..ops.core.prepared import PREPARED
from ..ops.message.calls import run_aggregate, run_edge_map, variants_of
from ..ops.message.message_op import MessageOp
from ..planner.plan import Plan
from ..runtime.devices import check_kernels
from ..runtime.type_names import accumulator_of
from ..structures.graph import Graph
from . import precompile_operators as _loaded  # noqa: F401  (with it all families have said what they prepare)

OPS: dict[str, MessageOp] = {name: call.form for name, call in PREPARED.items() if call.form is not None}
"""Messages by name, of those that have plans to choose from."""


@dataclass(frozen=True, eq=False)
class Task:
    """An operator on a graph, in one direction. ``direction``: "forward" or "backward", on the graph's transpose."""

    op: str
    direction: str
    graph: Graph
    features: int
    dtype: torch.dtype

    @property
    def message_op(self) -> MessageOp:
        return OPS[self.op] if self.direction == "forward" else OPS[self.op].gradient(0).form

    @property
    def kind(self) -> str:
        return self.message_op.kind

    @property
    def name(self) -> str:
        return self.op if self.direction == "forward" else f"{self.op} backward"

    @property
    def operands(self) -> list[tuple[tuple[int, ...], torch.dtype] | None]:
        """Shape and type of each operand; None for the number of the edge. Backward, ``graph`` is the transpose."""
        forward = self.graph if self.direction == "forward" else self.graph.transpose()
        rows, wide = forward.shape[0], accumulator_of(self.dtype)
        lengths = {"row": rows, "column": forward.shape[1], "edge": forward.num_edges}
        given = [
            ((lengths[place], 1 if place == "edge" else self.features), self.dtype) for place in OPS[self.op].places
        ]
        if self.direction == "forward":
            return given
        extra = {
            "cotangent": ((rows, self.features), self.dtype),
            "scale": ((rows, 1), wide),
            "result": ((rows, self.features), self.dtype),
            "number": None,
            "others": ((forward.num_edges, self.features), wide),
        }
        return [given[s] if isinstance(s, int) else extra[s] for s in OPS[self.op].gradient(0).sources]

    def variants(self, plan: Plan) -> Mapping[str, str]:
        """The ways that a plan can run, between which a call decides, with the words for when each is taken."""
        meta = [None if x is None else torch.empty(x[0], dtype=x[1], device="meta") for x in self.operands]
        return variants_of(self.message_op, self.graph, meta, plan, self.reduced)

    @property
    def reduced(self) -> tuple[bool, ...]:
        """Which dimensions an edge map sums over."""
        return (True,) if self.message_op.reduce is None else ()

    def runner(self):
        """A function without arguments that runs the operator on random operands."""
        of, graph = self.message_op, self.graph
        operands = [None if x is None else random_tensor(*x, graph.device) for x in self.operands]
        if self.direction == "backward" and "result" in OPS[self.op].gradient(0).sources:
            forward = Task(self.op, "forward", graph.transpose(), self.features, self.dtype)
            operands[OPS[self.op].gradient(0).sources.index("result")] = forward.runner()()
        if of.reduce is None:
            return lambda: run_edge_map(of, graph, operands, self.reduced)
        return lambda: run_aggregate(of, graph, operands)


def tasks_of(
    graph: Graph, ops: Iterable[str], features: Iterable[int], dtype: torch.dtype, backward: bool
) -> list[Task]:
    """Every operator at every width, and of aggregations the gradient to the features of sources where ``backward``.

    Raises ValueError for a graph on a device that has no kernels, BuildError that says what a GPU lacks here.
    """
    check_kernels("plans", graph.device)
    tasks = []
    for op in ops:
        for width in features:
            tasks.append(Task(op, "forward", graph, width, dtype))
            if backward and OPS[op].reduce is not None:
                tasks.append(Task(op, "backward", graph.transpose(), width, dtype))
    return tasks


def check_features(features) -> tuple[int, ...]:
    """Widths: positive whole numbers, one or several. Raises ValueError that quotes the first that is not."""
    widths = (features,) if isinstance(features, int) else tuple(features)
    for width in widths:
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise ValueError(f"features must be positive whole numbers, got {width!r}")
    if not widths:
        raise ValueError("features names no width")
    return tuple(dict.fromkeys(widths))


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Values without subnormals, infinities or much spread; always the same, and the user's generator is left alone."""
    generator, count = torch.Generator().manual_seed(0), prod(shape)
    row = torch.rand(1 << 12, generator=generator).add_(0.5).to(device)
    return row.repeat(-(-count // row.numel())).narrow(0, 0, count).view(shape).to(dtype)
