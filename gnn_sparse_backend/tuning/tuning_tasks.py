"""The operators whose plans are measured, by name, and what each runs forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..compiler.language.reduction import REDUCTIONS
from ..ops.message.calls import run_aggregate, run_edge_map
from ..ops.message.message_op import MessageOp, message_op
from ..runtime.devices import check_kernels
from ..structures.graph import Graph

_COPY = ("x0", ("column",))
_WEIGHTED = ("mul(x1, x0)", ("column", "edge"))
OPS: dict[str, MessageOp] = {
    **{
        prefix + name: message_op(*form, name, "even" if reduction.chooses else None)
        for prefix, form in (("", _COPY), ("weighted_", _WEIGHTED))
        for name, reduction in REDUCTIONS.items()
    },
    "dot": message_op("mul(x0, x1)", ("row", "column")),
}
"""``weighted_*``: a number per edge times the features of its source.

``dot``: the dot product of both ends of each edge.
"""

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}


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

    def described(self) -> list[Tensor | None]:
        """The operands without their values."""
        of, forward = self.message_op, self.direction == "forward"
        sources = range(len(of.places)) if forward else OPS[self.op].gradient(0).sources
        rows = {"row": self.graph.shape[0], "column": self.graph.shape[1], "edge": self.graph.num_edges}
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        found: list[Tensor | None] = []
        for source, place in zip(sources, of.places):
            at_edges = isinstance(source, int) and OPS[self.op].places[source] == "edge"
            shape = rows.get(place, 0), 1 if source == "scale" or at_edges else self.features
            dtype = wide if source in ("scale", "others") else self.dtype
            found.append(None if source == "number" else torch.empty(shape, dtype=dtype, device="meta"))
        return found

    def runner(self):
        """A function without arguments that runs the operator on random operands."""
        of, graph = self.message_op, self.graph
        if self.direction == "forward":
            operands = _operands(of, graph, self.features, self.dtype)
        else:
            operands = self._gradient_operands()
        if of.reduce is None:
            return lambda: run_edge_map(of, graph, operands, (True,))
        return lambda: run_aggregate(of, graph, operands)

    def _gradient_operands(self) -> list[Tensor | None]:
        """Operands as the backward pass has them. ``graph`` is the transpose already."""
        forward = self.graph.transpose()
        rows = forward.shape[0]
        original = _operands(OPS[self.op], forward, self.features, self.dtype)
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        at_rows = functools.partial(random_tensor, device=forward.device)
        extra = {
            "cotangent": lambda: at_rows((rows, self.features), self.dtype),
            "scale": lambda: at_rows((rows, 1), wide),
            "result": lambda: run_aggregate(OPS[self.op], forward, original),
            "number": lambda: None,
            "others": lambda: random_tensor((forward.num_edges, self.features), wide, forward.device),
        }
        return [
            original[source] if isinstance(source, int) else extra[source]()
            for source in OPS[self.op].gradient(0).sources
        ]


def tasks_of(
    graph: Graph, ops: Iterable[str], features: Iterable[int], dtype: torch.dtype, backward: bool
) -> list[Task]:
    """Every operator at every width, and of aggregations the gradient to the features of sources where ``backward``.

    Raises ValueError for a graph on a device that has no kernels, BuildError that says what a GPU lacks here.
    """
    if graph.device.type != "cpu":
        check_kernels("plans", graph.device)
    tasks = []
    for op in ops:
        for width in features:
            tasks.append(Task(op, "forward", graph, width, dtype))
            if backward and OPS[op].reduce is not None:
                tasks.append(Task(op, "backward", graph.transpose(), width, dtype))
    return tasks


def check_op(op: str) -> str:
    """``op``, or ValueError that names those there are."""
    if op not in OPS:
        raise ValueError(f"unknown operator {op!r}: choose from {', '.join(OPS)}")
    return op


def check_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A floating type that kernels take. Raises ValueError that names them."""
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise ValueError(f"dtype {dtype!r} is none that kernels take: choose from {', '.join(DTYPES)}")
    return found


def check_features(features) -> tuple[int, ...]:
    """Widths: positive whole numbers, one or several. Raises ValueError that quotes the first that is not."""
    widths = (features,) if isinstance(features, int) else tuple(features)
    for width in widths:
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise ValueError(f"features must be positive whole numbers, got {width!r}")
    if not widths:
        raise ValueError("features names no width")
    return tuple(dict.fromkeys(widths))


def _operands(of: MessageOp, graph: Graph, features: int, dtype: torch.dtype) -> list[Tensor]:
    rows = {"row": graph.shape[0], "column": graph.shape[1], "edge": graph.num_edges}
    return [
        random_tensor((rows[place], 1 if place == "edge" else features), dtype, graph.device) for place in of.places
    ]


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Values without subnormals, infinities or much spread; always the same, and the user's generator is left alone."""
    generator, count = torch.Generator().manual_seed(0), prod(shape)
    row = torch.rand(1 << 12, generator=generator).add_(0.5).to(device)
    return row.repeat(-(-count // row.numel())).narrow(0, 0, count).view(shape).to(dtype)
