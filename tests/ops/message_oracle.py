"""Messages over edges in plain torch float64, and structures and layouts to try them on.

Values are small multiples of a power of two, so that messages, and sums of thousands of them, are exact in the
accumulation type of every storage type: what a kernel may differ by is what rounding its result costs.
"""

from __future__ import annotations

import numpy as np
import torch

import gnn_sparse_backend as gsb

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

MESSAGES = {
    "copy_u": lambda x: x,
    "copy_e": lambda x: x,
    "copy_lhs": lambda x: x,
    "copy_rhs": lambda x: x,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "dot": lambda x, y: (x * y).sum(-1, keepdim=True),
}


class Edges:
    """A graph with its edges as a user knows them: row and col of each, and its position among the non-zeros."""

    def __init__(self, graph, row, col, order):
        self.graph = graph
        self.row, self.col = torch.as_tensor(row), torch.as_tensor(col)
        self.position = torch.empty(len(row), dtype=torch.int64)
        self.position[torch.as_tensor(order)] = torch.arange(len(row))


def from_coo(row, col, shape) -> Edges:
    row, col = np.asarray(row, dtype=np.int64), np.asarray(col, dtype=np.int64)
    graph = gsb.Graph.from_coo(torch.from_numpy(row), torch.from_numpy(col), shape)
    return Edges(graph, row, col, np.argsort(row, kind="stable"))


def from_csr(row, col, shape, numbers=None) -> Edges:
    """Edge ``numbers[p]`` is the one at position p of the sorted rows; None: edge p."""
    order = np.argsort(row, kind="stable")
    row, col = row[order], col[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=shape[0]))])
    graph = gsb.Graph.from_csr(indptr, col, shape, numbers)
    if numbers is None:
        return Edges(graph, row, col, np.arange(len(row)))
    user_row, user_col = np.empty_like(row), np.empty_like(col)
    user_row[numbers], user_col[numbers] = row, col
    return Edges(graph, user_row, user_col, numbers)


def _drawn(seed: int, rows: int, cols: int, count: int):
    rng = np.random.default_rng(seed)
    return rng.integers(0, rows, count), rng.integers(0, cols, count)


def messy() -> Edges:
    """Square, unsorted, with isolated nodes, self loops and duplicates, one of which is three times the same edge."""
    row, col = _drawn(0, 9, 9, 60)
    loops = np.arange(5)
    return from_coo(np.concatenate([row, loops, [2, 2, 2]]), np.concatenate([col, loops, [7, 7, 7]]), (13, 13))


def hub() -> Edges:
    """A row of degree 20,000 beside short ones."""
    row, col = _drawn(1, 6, 40, 50)
    _, many = _drawn(2, 1, 40, 20_000)
    return from_coo(np.concatenate([row, np.full(20_000, 3)]), np.concatenate([col, many]), (7, 40))


def sorted_csr() -> Edges:
    """Rectangular, edges in the order of the rows, an empty row first and last."""
    row, col = _drawn(3, 9, 5, 40)
    return from_csr(row + 1, col, (11, 5))


def own_order() -> Edges:
    """Rectangular the other way, columns unsorted, edges numbered at random."""
    row, col = _drawn(4, 5, 31, 70)
    return from_csr(row, col, (5, 31), np.random.default_rng(5).permutation(70))


STRUCTURES = {"messy": messy, "hub": hub, "sorted_csr": sorted_csr, "own_order": own_order}
EMPTY = {"no_edges": ([], [], (4, 3)), "no_rows": ([], [], (0, 5)), "no_columns": ([], [], (5, 0))}


def _offset(x: torch.Tensor) -> torch.Tensor:
    """At an address that is a multiple of the element's size alone."""
    flat = x.new_empty(x.numel() + 1)[1:]
    return flat.view(x.shape).copy_(x)


def _last_dimension_first(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


LAYOUTS = {
    "plain": lambda x: x,
    "every_second_row": lambda x: x.repeat_interleave(2, 0)[::2],
    "last_dimension_first": _last_dimension_first,
    "offset": _offset,
    "one_row_repeated": lambda x: x[:1].expand(x.shape) if x.dim() else x,
}


def values(seed: int, *shape: int, power: bool = False) -> torch.Tensor:
    """Multiples of a half up to 2, with many ties; ``power``: a half, one or two with a sign, safe to divide by."""
    generator = torch.Generator().manual_seed(seed)
    if power:
        signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        return signs * 2.0 ** torch.randint(-1, 2, shape, generator=generator).double()
    return torch.randint(-4, 5, shape, generator=generator).double() / 2


def at_edges(edges: Edges, place: str, x: torch.Tensor, dims: int) -> torch.Tensor:
    """The operand for every edge, its features padded to ``dims`` dimensions."""
    x = {"u": lambda: x[edges.col], "v": lambda: x[edges.row], "e": lambda: x, "all": lambda: x[None]}[place]()
    return x.reshape(x.shape[0], *(1,) * (dims + 1 - x.dim()), *x.shape[1:])


def messages(edges: Edges, function, places, operands) -> torch.Tensor:
    """(E, ...): the message of every edge."""
    dims = max(x.dim() - (place != "all") for place, x in zip(places, operands))
    return function(*(at_edges(edges, place, x, dims) for place, x in zip(places, operands)))


def reduced(edges: Edges, message: torch.Tensor, reduce: str, ties: str, dtype, shares=None):
    """(result, shares): the messages reduced into rows; ``shares`` says how max and min divide a gradient.

    With ``shares`` the result of max and min is the sum of the messages in these shares.
    """
    rows, row = edges.graph.shape[0], edges.row
    shape = (rows, *message.shape[1:])
    if reduce in ("sum", "mean"):
        out = message.new_zeros(shape).index_add(0, row, message)
        degrees = torch.bincount(row, minlength=rows).clamp(min=1)
        return (out / degrees.view(-1, *(1,) * (out.dim() - 1)) if reduce == "mean" else out), None
    index = row.view(-1, *(1,) * (message.dim() - 1)).expand(message.shape)
    stored = message.detach().to(dtype).double()
    neutral = -torch.inf if reduce == "max" else torch.inf
    best = None
    if shares is None:
        best = torch.full(shape, neutral, dtype=torch.float64).scatter_reduce(0, index, stored, "a" + reduce)
        attained = stored == best[row]
        if ties in ("even", "even_with_zero"):
            nobody = ((best == 0) & (ties == "even_with_zero")).double()
            shares = attained / nobody.index_add(0, row, attained.double())[row]
        else:
            position = edges.position.view(-1, *(1,) * (message.dim() - 1)).expand(message.shape)
            nobody = len(row) if ties == "first" else -1
            taken = torch.full(shape, nobody).scatter_reduce(
                0, index, torch.where(attained, position, nobody), "amin" if ties == "first" else "amax"
            )
            shares = (position == taken[row]).double()
    out = message.new_zeros(shape).index_add(0, row, shares * message)
    if best is None:
        return out, shares
    if ties in ("even", "even_with_zero"):
        best = torch.where(best == neutral, 0.0, best)  # rows without edges: values are finite
    return best + (out - out.detach()), shares


def assert_close_to(
    actual: torch.Tensor, expected: torch.Tensor, magnitude: torch.Tensor, roundings: int = 0, terms: int = 1
) -> None:
    """Within the rounding of the result, of some steps in the accumulation type, and of ``roundings`` in its own.

    terms: of the longest sum, whose rounding grows as a random walk (Higham, Accuracy and Stability, section 4.2).
    """
    assert actual.shape == expected.shape
    own = torch.finfo(actual.dtype)
    accumulation = torch.finfo(torch.float64 if actual.dtype == torch.float64 else torch.float32)
    bound = (
        own.eps * expected.abs()
        + ((8 + terms**0.5 / 2) * accumulation.eps + roundings * own.eps) * magnitude.abs()
        + own.tiny
    )
    actual = actual.detach().double()
    right = ((actual - expected).abs() <= bound) | (actual == expected)  # the same infinity
    assert right.all(), (
        f"{int((~right).sum())} of {right.numel()} are wrong, first {actual[~right][0]}, expected {expected[~right][0]}"
    )


def assert_step(actual, given, expected, inputs, magnitude, sizes, roundings: float = 0, terms: int = 1) -> None:
    """A result, and its gradients for random cotangents, are those of an oracle, within what they may be rounded.

    expected: of ``inputs``. magnitude: of their ``sizes``. roundings, terms: of the gradients, as of `assert_close_to`.
    """
    dtype = given[0].dtype
    assert actual.dtype == dtype and actual.is_contiguous()
    assert_close_to(actual, expected, magnitude)
    cotangent = values(3, *expected.shape)
    gradients = torch.autograd.grad(actual, given, cotangent.to(dtype))
    wanted = torch.autograd.grad(expected, inputs, cotangent)
    bounds = torch.autograd.grad(magnitude, sizes, cotangent.abs())
    for gradient, right, bound in zip(gradients, wanted, bounds, strict=True):
        assert gradient.dtype == dtype
        assert_close_to(gradient, right, bound, roundings, terms)


def case_name(value) -> str:
    """How a value of a factor reads in the name of a test."""
    return str(value).removeprefix("torch.").replace(" ", "")
