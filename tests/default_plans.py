"""Calls of every operator, forward and backward, that lead to each of the plans which the rules for a GPU take by
themselves.

For tools that watch kernels run on a GPU (``tests/sanitizer.py``), and for answers beside the CPU's
(``tests/ops/core/test_cuda.py``). Sizes are the least that the rules take each plan from.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.planner.cuda import blocks as cuda_bsr
from gnn_sparse_backend.planner.cuda.plan import BUCKETS_PAY, WARP
from gnn_sparse_backend.planner.cuda.rows import LONG_ROW, PART
from tests.ops.operators import OPERATORS

TYPES = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16")}


@dataclass(frozen=True)
class Case:
    """name: in words, unlike any other's. run: makes operands on a device, calls, and goes back; gives the result and
    the gradients.
    tf32: float32 may be multiplied so. Operands are drawn on the CPU, the same at every call, and so is what flows
    back."""

    name: str
    run: Callable[[torch.device], tuple[Tensor, ...]]
    tf32: bool = False

    def __call__(self, device: torch.device) -> tuple[Tensor, ...]:
        with _precision("high" if self.tf32 else "highest"):
            torch.manual_seed(0)
            return self.run(device)

    def exact(self) -> tuple[Tensor, ...]:
        """In float64 on the CPU, of the same operands, which are rounded to the case's type all the same."""
        widened = _WIDENED.set(True)
        try:
            return self(torch.device("cpu"))
        finally:
            _WIDENED.reset(widened)


_WIDENED = contextvars.ContextVar("widened", default=False)


def operand(x: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A leaf of these numbers, rounded to a type, on a device."""
    x = x.detach().to(dtype)
    return x.to(device, torch.float64 if _WIDENED.get() else dtype).requires_grad_()


@contextlib.contextmanager
def _precision(wanted: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def excess(found: torch.Tensor, expected: torch.Tensor, rounding: float) -> float:
    """By how much the two differ more, anywhere, than sums of rounded terms may, which cancel: relative to the number
    itself, and to those of its row, or to the root mean square of all where that is larger: gradients behind a softmax
    cancel in most rows. NaN where one of them alone is NaN or infinite."""
    found, expected = (x.double().flatten(1) if x.dim() > 1 else x.double()[:, None] for x in (found, expected))
    finite = expected.masked_fill(~expected.isfinite(), 0.0)
    squares = finite.square()
    usual = torch.maximum(squares.mean(1, keepdim=True), squares.mean()).sqrt()
    difference = torch.where(found == expected, 0.0, found - expected)
    return float((difference.abs() - rounding * (finite.abs() + usual)).amax())


def values(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return operand(torch.randn(shape), device, dtype)


def backward(out: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
    """The result and the gradients, of numbers of both signs: those of ones sum up to zero behind a softmax. They are
    eighths, which every type has.
    """
    return out.detach(), *torch.autograd.grad(out, operands, (torch.randint(-16, 17, out.shape) / 8).to(out))


def _of_lengths(lengths: Tensor, columns: int) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """(row, col, shape) of rows with so many non-zeros each, in no order."""
    row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    order = torch.randperm(len(row), generator=torch.Generator().manual_seed(0))
    return (
        row[order],
        torch.randint(0, columns, (len(row),), generator=torch.Generator().manual_seed(1)),
        (len(lengths), columns),
    )


def _short():
    return _of_lengths(torch.arange(200) % 7, 150)


def _filled():
    return _of_lengths(torch.arange(100) % 5 * WARP, 300)


def _middle():
    return _of_lengths(torch.arange(100) % 24, 90)


def _hub():
    """Rows that are cut into parts, the transpose's too."""
    row, col, (rows, columns) = _of_lengths(
        torch.cat([torch.tensor([LONG_ROW + PART + 3, 0, 700]), torch.arange(60) % 5]), 70
    )
    return torch.cat([row, torch.arange(3000) % rows]), torch.cat([col, torch.full((3000,), 5)]), (rows, columns)


def _skewed():
    """Enough edges, and a longest row of many times the mean, for buckets and for chunks of non-zeros."""
    lengths = torch.full((BUCKETS_PAY // 8,), 8)
    lengths[3], lengths[5:8] = 5000, 1
    return _of_lengths(lengths, 50_000)


def _blocks(together: int, spread: int) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Groups of 16 rows that have the same columns, ``together`` of which stand side by side, the groups ``spread``
    apart.
    """
    rows, each = cuda_bsr.LEAST_EDGES // 256, 256
    starts = torch.randint(
        0, rows // spread - 1, (rows // 16, each // together), generator=torch.Generator().manual_seed(2)
    )
    columns = (starts.sort(1).values[:, :, None] * spread + torch.arange(together)).flatten(1)
    row = torch.arange(rows)[:, None].expand(-1, each)
    return row.flatten(), columns.repeat_interleave(16, 0).flatten(), (rows, rows)


@functools.lru_cache(maxsize=2)
def a_graph(structure: str, device: torch.device) -> gsb.Graph:
    """With its formats, for the calls on it come one after the other, on one device or on two by turns."""
    row, col, shape = STRUCTURES[structure]()
    return gsb.Graph.from_coo(row.to(device), col.to(device), shape)


STRUCTURES = {
    "short rows": _short,
    "rows of a few lanes": _middle,
    "filled rows": _filled,
    "rows in parts": _hub,
    "a large skewed graph": _skewed,
    "dense blocks": lambda: _blocks(16, 16),
    "shared columns": lambda: _blocks(1, 1),
}
# Of sums and dot products on each structure.
WIDTHS = {
    **dict.fromkeys(STRUCTURES, (1, 3, 128)),
    "filled rows": (1, 3, 128, 602),
    "a large skewed graph": (1, 3, 64),
    "dense blocks": (64,),
    "shared columns": (64,),
}


def _sums(structure: str, width: int, dtype: torch.dtype, weighted: bool, reduce: str):
    def run(device: torch.device):
        graph = a_graph(structure, device)
        x = values(device, dtype, graph.shape[1], width)
        if not weighted:
            return backward(gsb.spmm(graph, x, reduce=reduce), x)
        weight = values(device, dtype, graph.num_edges)
        return backward(gsb.spmm(graph, x, weight, reduce), x, weight)

    return run


def _dots(structure: str, width: int, dtype: torch.dtype):
    def run(device: torch.device):
        graph = a_graph(structure, device)
        u, x = (values(device, dtype, n, width) for n in graph.shape)
        return backward(gsb.sddmm(graph, u, x), u, x)

    return run


def _grouped(widths: tuple[int, int], dtype: torch.dtype, gathered: bool):
    def run(device: torch.device):
        lengths = torch.tensor([70, 0, 300, 1, 129])
        a, b = values(device, dtype, 500, widths[0]), values(device, dtype, 5, *widths)
        if not gathered:
            return backward(gsb.segment_mm(a, b, lengths.to(device)), a, b)
        index = torch.repeat_interleave(torch.arange(5), lengths)[torch.randperm(500)].to(device)
        return backward(gsb.gather_mm(a, b, index), a, b)

    return run


def _relational(widths: tuple[int, int, int], dtype: torch.dtype, weighted: bool, reduce: str):
    def run(device: torch.device):
        features, out, blocks = widths
        relation = torch.cat([torch.zeros(150), torch.full((1,), 2.0), torch.full((900,), 3.0)]).long()
        # pairs of many edges at the rows, so that sums are multiplied
        destination = torch.cat([torch.arange(150) % 75, torch.tensor([80]), torch.randint(0, 90, (900,))])
        source = torch.randint(0, 300, (1051,))
        rel = gsb.RelGraph.from_triples(*(t.to(device) for t in (source, destination, relation)), (90, 300), 4)
        x = values(device, dtype, 300, features)
        shape = (4, features, out) if blocks == 1 else (4, blocks, features // blocks, out // blocks)
        w = values(device, dtype, *shape)
        a = values(device, dtype, 1051) if weighted else None
        return backward(gsb.rgms(rel, x, w, a, reduce), *([x, w, a] if weighted else [x, w]))

    return run


def _relational_by_rows(dtype: torch.dtype, weighted: bool, reduce: str):
    """Rows enough for blocks that own them, most of whose relations they share; and a hub, which is cut."""

    def run(device: torch.device):
        nodes, edges = 70_000, 280_000
        destination, source = (torch.randint(0, nodes, (edges,)) for _ in range(2))
        destination[:3000] = 5
        relation = (destination + source) % 4
        rel = gsb.RelGraph.from_triples(*(t.to(device) for t in (source, destination, relation)), (nodes, nodes), 5)
        x, w = values(device, dtype, nodes, 64), values(device, dtype, 5, 64, 64)
        a = values(device, dtype, edges) if weighted else None
        return backward(gsb.rgms(rel, x, w, a, reduce), *([x, w, a] if weighted else [x, w]))

    return run


def operator(name: str, structure: str, dtype: torch.dtype):
    def run(device: torch.device):
        graph = a_graph(structure, device)
        operands = [operand(x, device, dtype) for x in OPERATORS[name].operands(graph, dtype)]
        return backward(OPERATORS[name].run(graph, *operands), *operands)

    return run


def cases() -> list[Case]:
    """All of them, quick ones first."""
    found = [
        Case(f"{name}, {words}", operator(name, "short rows", TYPES[words]))
        for name in OPERATORS
        for words in ("float32", "bfloat16")
    ]
    found += [
        Case(f"{name}, rows in parts", operator(name, "rows in parts", torch.float32))
        for name in OPERATORS
        if "attention" in name or name == "edge_softmax"
    ]
    for words, dtype in TYPES.items():
        for widths in ((5, 4), (64, 64), (128, 130)):
            for gathered in (False, True):
                for tf32 in (False, True)[: 1 + (dtype is torch.float32)]:
                    kind = "gather" if gathered else "segment"
                    name = f"{kind}_mm {widths[0]} to {widths[1]}, {'tf32' if tf32 else words}"
                    found.append(Case(name, _grouped(widths, dtype, gathered), tf32))
        for widths in ((5, 7, 1), (16, 24, 1), (64, 64, 1), (48, 72, 3)):
            for weighted, reduce in ((False, "mean"), (True, "sum")):
                for tf32 in (False, True)[: 1 + (dtype is torch.float32)]:
                    name = f"rgms {widths[0]} to {widths[1]} in {widths[2]}, {reduce}, {'tf32' if tf32 else words}"
                    found.append(Case(name, _relational(widths, dtype, weighted, reduce), tf32))
    found += [
        Case(f"rgms by rows of the result, {words}", _relational_by_rows(dtype, weighted, reduce), words == "tf32")
        for words, dtype, weighted, reduce in (
            ("float16", torch.float16, True, "sum"),
            ("bfloat16", torch.bfloat16, False, "sum"),
            ("tf32", torch.float32, False, "mean"),
            ("float32", torch.float32, True, "mean"),
        )
    ]
    for structure, widths in WIDTHS.items():
        types = ("float16",) if "dense" in structure or "shared" in structure else ("float32", "bfloat16")
        for width in widths:
            for words in types:
                for weighted, reduce in ((False, "sum"), (True, "mean"), (False, "max")):
                    found.append(
                        Case(
                            f"{'weighted ' * weighted}{reduce} of {width} on {structure}, {words}",
                            _sums(structure, width, TYPES[words], weighted, reduce),
                        )
                    )
                found.append(Case(f"dots of {width} on {structure}, {words}", _dots(structure, width, TYPES[words])))
        if types == ("float16",):
            found.append(
                Case(
                    f"weighted sum of 64 on {structure}, tf32",
                    _sums(structure, 64, torch.float32, True, "sum"),
                    tf32=True,
                )
            )
    return found
