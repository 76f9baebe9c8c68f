"""Relational products over a few listed edges are those of a graph of relations, and refuse what is not for them."""

import pytest
import torch

from gnn_sparse_backend.ops.core.executable import OutOfRange
from gnn_sparse_backend.ops.relational.few import few_relations

pytestmark = pytest.mark.few
ROWS, COLUMNS, EDGES, RELATIONS = 9, 11, 50, 3


def problem(dtype=torch.float64, bases=0):
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    row, col, relation = (torch.randint(n, (EDGES,), generator=generator) for n in (ROWS - 2, COLUMNS, RELATIONS))
    weight = (random(RELATIONS, bases), random(bases, 5, 4)) if bases else random(RELATIONS, 5, 4)
    return random(COLUMNS, 5), weight, row, col, relation


def expected(x, weight, row, col, relation, reduce, scale=None):
    matrices = torch.einsum("rb,bio->rio", *weight) if isinstance(weight, tuple) else weight
    out = x.new_zeros(ROWS, matrices.shape[-1])
    for r in range(RELATIONS):
        mine = relation == r
        messages = x[col[mine]] @ matrices[r]
        if scale is not None:
            messages = messages * scale[mine]
        sums = x.new_zeros(ROWS, matrices.shape[-1]).index_add(0, row[mine], messages)
        if reduce == "mean":
            sums = sums / torch.bincount(row[mine], minlength=ROWS).clamp(min=1).unsqueeze(1)
        out = out + sums
    return out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("bases", [0, 2])
@pytest.mark.parametrize("reduce", ["sum", "mean", "scaled"])
def test_products(reduce, bases, dtype):
    x, weight, row, col, relation = problem(dtype, bases)
    scale = torch.rand(EDGES, 1, dtype=dtype).requires_grad_() if reduce == "scaled" else None
    kind = "sum" if reduce == "scaled" else reduce
    ours = few_relations(x, weight, row, col, relation, (ROWS, COLUMNS), kind, scale)
    theirs = expected(x, weight, row, col, relation, kind, scale)
    torch.testing.assert_close(ours, theirs)
    leaves = [t for t in (x, *(weight if bases else (weight,)), scale) if t is not None]
    cotangent = torch.randn_like(theirs)
    for one, other in zip(torch.autograd.grad(ours, leaves, cotangent), torch.autograd.grad(theirs, leaves, cotangent)):
        torch.testing.assert_close(one, other)


def test_what_is_not_for_it():
    x, weight, row, col, relation = problem()
    shape = ROWS, COLUMNS
    wrong = relation.clone()
    wrong[3] = RELATIONS
    assert few_relations(x, weight, row, col, wrong, shape, "sum") is None
    wrong[3] = -1
    assert few_relations(x, weight, row, col, wrong, shape, "mean") is None
    assert few_relations(x.bfloat16(), weight.bfloat16(), row, col, relation, shape, "sum") is None
    assert few_relations(x, weight.unsqueeze(1), row, col, relation, shape, "sum") is None
    assert few_relations(x, weight, row[:0], col[:0], relation[:0], shape, "sum") is None
    many = torch.randn(200, 5, 4, dtype=torch.float64)
    assert few_relations(x, many, row, col, relation, shape, "sum") is None


@pytest.mark.parametrize(("end", "value"), [("row", ROWS), ("col", COLUMNS), ("col", -1)])
def test_ends_out_of_range(end, value):
    x, weight, row, col, relation = problem()
    {"row": row, "col": col}[end][0] = value
    for reduce in ("sum", "mean"):
        with pytest.raises(OutOfRange):
            few_relations(x, weight, row, col, relation, (ROWS, COLUMNS), reduce)
    row[0] = -1
    assert few_relations(x, weight, row, col, relation, (ROWS, COLUMNS), "mean") is None
