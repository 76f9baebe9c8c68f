"""Attention and softmax over edges as the frameworks compose them, in torch float64, differentiable."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import leaky_relu

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message.message_op import message_op

TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def graph_of(structure) -> gsb.Graph:
    row, col, shape = structure
    return gsb.Graph.from_coo(torch.from_numpy(row), torch.from_numpy(col), shape)


def softmax(scores: torch.Tensor, ends: torch.Tensor, count: int) -> torch.Tensor:
    """exp(s - max) / sum over the edges with one end; the maximum takes part in no gradient."""
    index = ends.view(-1, *(1,) * (scores.dim() - 1)).expand_as(scores)
    start = scores.new_full((count, *scores.shape[1:]), -torch.inf)
    maximum = start.scatter_reduce(0, index, scores.detach(), "amax")
    weights = (scores - maximum[ends]).exp()
    total = torch.zeros_like(start).index_add(0, ends, weights)
    return weights / total[ends]


class Case:
    """One attention: its forms, and the same in torch over operands gathered to the edges.

    score, value: (message, places, feature shapes of the operands). compute: of the operands of each, at the edges.
    """

    def __init__(self, score, value, reduced, score_at_edges, value_at_edges):
        self.score, self.value, self.reduced = score, value, reduced
        self.at_edges = score_at_edges, value_at_edges

    @property
    def forms(self):
        return message_op(*self.score[:2]), message_op(*self.value[:2])

    def operands(self, structure, dtype=torch.float64, seed=0, grad=True):
        row, _, (rows, cols) = structure
        counts = {"row": (rows,), "column": (cols,), "edge": (len(row),), "all": ()}
        generator = torch.Generator().manual_seed(seed)

        def drawn(place, shape):
            x = torch.randn(*counts[place], *shape, generator=generator, dtype=torch.float64)
            return x.to(dtype).requires_grad_(grad)

        return [[drawn(*each) for each in zip(*described[1:])] for described in (self.score, self.value)]

    def exact(self, structure, score, value):
        """The result from operands of any type, in float64."""
        row, col = torch.from_numpy(structure[0]), torch.from_numpy(structure[1])

        def gathered(described, operands):
            at = {"row": row, "column": col, "edge": slice(None)}
            return [x.double() if place == "all" else x.double()[at[place]] for place, x in zip(described[1], operands)]

        scores = self.at_edges[0](*gathered(self.score, score))
        if self.reduced:
            scores = scores.sum(-1, keepdim=True)
        values = softmax(scores, row, structure[2][0]) * self.at_edges[1](*gathered(self.value, value))
        return values.new_zeros(structure[2][0], *values.shape[1:]).index_add(0, row, values)


def cases(H: int, D: int) -> dict[str, Case]:
    """Every way that scores and values are put together in DGL's and PyG's layers."""
    full, one = (H, D), (H, 1)
    columns = ("x0", ("column",), [full]), lambda v: v

    def slope(x):
        return leaky_relu(x, 0.2)

    return {
        "gat": Case(
            ("leaky_relu(add(x0, x1), 0.2)", ("row", "column"), [one, one]),
            columns[0],
            False,
            lambda a, b: slope(a + b),
            columns[1],
        ),
        "gat_edges": Case(
            ("leaky_relu(add(add(x0, x1), x2), 0.2)", ("row", "column", "edge"), [one] * 3),
            columns[0],
            False,
            lambda a, b, c: slope(a + b + c),
            columns[1],
        ),
        "gatv2": Case(
            ("mul(leaky_relu(add(x0, x1), 0.2), x2)", ("row", "column", "all"), [full] * 3),
            columns[0],
            True,
            lambda a, b, c: slope(a + b) * c,
            columns[1],
        ),
        "dot": Case(
            ("mul(mul(x0, x1), 0.3)", ("row", "column"), [full, full]),
            columns[0],
            True,
            lambda a, b: a * b * 0.3,
            columns[1],
        ),
        "transformer_edges": Case(
            ("mul(x0, add(x1, x2))", ("row", "column", "edge"), [full] * 3),
            ("add(x0, x1)", ("column", "edge"), [full, full]),
            True,
            lambda a, b, c: a * (b + c),
            lambda v, e: v + e,
        ),
        "dropout": Case(
            ("mul(x0, x1)", ("row", "column"), [full, full]),
            ("mul(x0, x1)", ("column", "edge"), [full, one]),
            True,
            lambda a, b: a * b,
            lambda v, e: v * e,
        ),
        "vector": Case(
            ("sub(x0, x1)", ("row", "column"), [full, full]), columns[0], False, lambda a, b: a - b, columns[1]
        ),
        "no_heads": Case(
            ("x0", ("edge",), [()]), ("x0", ("column",), [(D,)]), False, lambda e: e.unsqueeze(-1), columns[1]
        ),
        "shared_value": Case(
            ("mul(x0, x1)", ("row", "column"), [full, full]),
            ("x0", ("column",), [(1, D)]),
            True,
            lambda a, b: a * b,
            columns[1],
        ),
    }


def assert_close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Equal up to rounding in ``dtype``, relative to the largest finite entry; the same entries are not finite."""
    assert actual.shape == expected.shape
    actual, expected = actual.detach().double(), expected.detach().double()
    finite = expected.isfinite()
    scale = 1.0 + float(expected[finite].abs().max()) if finite.any() else 1.0
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=TOLERANCE[dtype] * scale, equal_nan=True)


def rows_of(lists) -> tuple:
    """A structure with the given numbers of edges into each row, every edge from a column of its own."""
    row = np.repeat(np.arange(len(lists)), lists).astype(np.int64)
    return row, np.arange(len(row), dtype=np.int64), (len(lists), len(row))


def cotangent_for(y: torch.Tensor, seed: int = 9) -> torch.Tensor:
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
