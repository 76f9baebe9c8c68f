"""Reductions by an index or by pointers, against masked reductions of a dense matrix in float64, forward and backward,
by kernels and by PyTorch's operators.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import torch_scatter as ts
from gnn_sparse_backend.planner.cpu.listed import FEW

KINDS = "sum", "mean", "mul", "min", "max"


@pytest.fixture(params=(True, False), ids=("kernels", "operators"), autouse=True)
def few(request, monkeypatch):
    """Whether calls of a few numbers are left to PyTorch's operators, which all of these are."""
    before = FEW.features
    FEW.set(0 if request.param else before)
    yield
    FEW.set(before)


def dense(src: Tensor, index: Tensor, dim: int, size: int, kind: str) -> tuple[Tensor, Tensor]:
    """(the reduction, the place of an extreme) of numbers that differ, by a mask of all rows."""
    src, index = src.movedim(dim, -1), index.movedim(dim, -1)
    mask = torch.nn.functional.one_hot(index, size).bool()
    each = src[..., None].expand(mask.shape)
    empty, extent = ~mask.any(-2), src.shape[-1]
    if kind in ("sum", "mean"):
        out = each.where(mask, 0).sum(-2)
        out = out / mask.sum(-2).clamp(min=1) if kind == "mean" else out
        at = torch.zeros_like(empty, dtype=torch.int64)
    elif kind == "mul":
        out, at = each.where(mask, 1).prod(-2), torch.zeros_like(empty, dtype=torch.int64)
    elif extent:
        sign = 1 if kind == "max" else -1
        out, at = (sign * each).where(mask, -torch.inf).max(-2)
        out, at = (sign * out).masked_fill(empty, 0), at.masked_fill(empty, extent)
    else:
        out, at = each.sum(-2), torch.zeros_like(empty, dtype=torch.int64)
    return out.movedim(-1, dim), at.movedim(-1, dim)


@st.composite
def problems(draw):
    """(src, index, dim, size): an index that is a vector, lies along some dimensions, or along all."""
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    dim, size = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    numel = torch.Size(shape).numel()
    src = (torch.randperm(numel, generator=generator).double() - numel / 3 + 0.25).view(shape)
    kind = draw(st.sampled_from(("vector", "some", "all")))
    of = {"vector": shape[dim : dim + 1], "some": [1 if at != dim else n for at, n in enumerate(shape)], "all": shape}
    return src, torch.randint(0, size, tuple(of[kind]), generator=generator), dim, size


@settings(max_examples=30, deadline=None)
@given(problems(), st.sampled_from(KINDS), st.booleans())
def test_scatter(problem, kind, negative):
    src, index, dim, size = problem
    src.requires_grad_()
    given_dim = dim - src.dim() if negative else dim
    found = getattr(ts, f"scatter_{kind}")(src, index, given_dim, dim_size=size)
    whole = ts.utils.broadcast(index, src, dim)
    expected, place = dense(src, whole, dim, size, kind)
    if kind in ("min", "max"):
        found, at = found
        assert torch.equal(at, place) and at.dtype is torch.int64
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    (of_found,), (of_expected,) = (torch.autograd.grad(x, src, grad, retain_graph=True) for x in (found, expected))
    torch.testing.assert_close(of_found, of_expected)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([kind for kind in KINDS if kind != "mul"]),
)
def test_segments(lengths, batches, dims, kind):
    """Pointers are one vector for all, or one a batch, which leaves out what is before and behind; with the way
    back."""
    outside, extent = 2, sum(lengths) + 4
    pointers = torch.tensor([0, *lengths]).cumsum(0) + outside
    src = torch.randn(batches, extent, *(3,) * dims, dtype=torch.float64, requires_grad=True)
    index = torch.full((extent,), len(lengths))
    index[outside : extent - 2] = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    expected, place = dense(src, ts.utils.broadcast(index, src, 1), 1, len(lengths) + 1, kind)
    expected, place = expected[:, :-1], place[:, :-1]
    grad = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad(expected, src, grad)
    inner = src[0], pointers, 0
    for x, ptr, dim in ((src, pointers.expand(batches, -1), 1), (src, pointers[None], 1), inner):
        found = getattr(ts, f"segment_{kind}_csr")(x, ptr)
        of = (lambda y: y[0]) if dim == 0 else (lambda y: y)
        if kind in ("min", "max"):
            found, at = found
            assert torch.equal(at, of(place))
        torch.testing.assert_close(found, of(expected))
        (of_found,) = torch.autograd.grad(found, src, of(grad))
        torch.testing.assert_close(of(of_found), of(wanted))


@pytest.mark.parametrize("shape", ((3,), (3, 2), (2, 3, 2)))
def test_gathers_are_repeats_and_their_gradients_sums(shape):
    dim = len(shape) // 3
    lengths = torch.tensor([2, 0, 3])
    pointers = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    index = torch.arange(3).repeat_interleave(lengths)
    src = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    expected = src.repeat_interleave(lengths, dim)
    if dim:
        pointers, index = pointers.expand(shape[0], -1), index.expand(shape[0], -1)
    for found in (ts.gather_csr(src, pointers), ts.gather_coo(src, index)):
        torch.testing.assert_close(found, expected)
        grad = torch.randn_like(expected)
        ours, theirs = (torch.autograd.grad(x, src, grad, retain_graph=True)[0] for x in (found, expected))
        torch.testing.assert_close(ours, theirs)
    out = torch.full_like(expected, -1).detach()
    assert ts.gather_csr(src.detach(), pointers, out) is out
    torch.testing.assert_close(out, expected.detach())


def test_equal_numbers_and_numbers_that_are_none():
    """The first of equal ones is chosen, and NaN never, which stands for nothing."""
    nan = torch.nan
    src = torch.tensor([[1.0, nan], [1.0, 2.0], [nan, nan], [-torch.inf, 2.0]], requires_grad=True)
    out, at = ts.scatter_max(src, torch.tensor([0, 0, 1, 2]), 0, dim_size=4)
    assert out.tolist() == [[1, 2], [0, 0], [0, 2], [0, 0]]
    assert at.tolist() == [[0, 1], [4, 4], [4, 3], [4, 4]]
    out.sum().backward()
    assert src.grad.tolist() == [[1, 0], [0, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize("kind", KINDS)
def test_on_top_of_what_is_there(kind):
    src, index = torch.tensor([3.0, -1.0, 5.0]), torch.tensor([0, 2, 0])
    out = torch.tensor([4.0, 7.0, -2.0])
    found = getattr(ts, f"scatter_{kind}")(src, index, 0, out)
    expected = {
        "sum": [12, 7, -3],
        "mean": [6, 7, -3],
        "mul": [60, 7, 2],
        "min": [3, 7, -2],
        "max": [5, 7, -1],
    }
    if kind in ("min", "max"):
        found, at = found
        assert at.tolist() == ([0, 3, 3] if kind == "min" else [2, 3, 1])
    assert found is out and out.tolist() == expected[kind]


@pytest.mark.parametrize("dtype", (torch.int32, torch.int64, torch.half, torch.bfloat16))
def test_other_types(dtype):
    src, index = torch.tensor([[7, -3], [2, 4], [-4, 0]]).to(dtype), torch.tensor([1, 0, 1])
    for kind, expected in (("sum", [[2, 4], [3, -3]]), ("max", [[2, 4], [7, 0]]), ("mul", [[2, 4], [-28, 0]])):
        found = ts.scatter(src, index, 0, reduce=kind)
        assert found.dtype is dtype and found.tolist() == expected
    if not dtype.is_floating_point:  # down, and towards 0
        assert ts.scatter_mean(src, index, 0).tolist() == [[2, 4], [1, -2]]
        assert ts.segment_mean_coo(src[:2] - 3, torch.zeros(2, dtype=torch.int64)).tolist() == [[1, -2]]


def test_softmax_and_its_kin():
    """Against those of each row by itself, with gradients."""
    torch.manual_seed(0)
    src = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([1, 0, 1, 3, 1, 0])
    rows = [(index == row).nonzero().flatten() for row in range(4)]
    for ours, theirs in (
        (ts.scatter_softmax, lambda x: x.softmax(0)),
        (ts.scatter_log_softmax, lambda x: x.log_softmax(0)),
    ):
        found = ours(src, index, 0)
        expected = torch.zeros_like(src).index_put((torch.cat(rows),), torch.cat([theirs(src[row]) for row in rows]))
        torch.testing.assert_close(found, expected)
        grad = torch.randn_like(src)
        one, other = (torch.autograd.grad(x, src, grad, retain_graph=True)[0] for x in (found, expected))
        torch.testing.assert_close(one, other)
    found = ts.scatter_logsumexp(src, index, 0, dim_size=5)
    torch.testing.assert_close(found[:4:3], torch.stack([src[row].logsumexp(0) for row in rows[::3]]))
    assert found[2].tolist() == [0, 0, 0] and found[4].tolist() == [0, 0, 0]
    torch.testing.assert_close(ts.scatter_std(src, index, 0)[1], src[rows[1]].std(0), rtol=1e-5, atol=1e-5)
    for function in (ts.scatter_softmax, ts.scatter_log_softmax, ts.scatter_logsumexp):
        with pytest.raises(ValueError, match="floating point"):
            function(index, index)


def test_second_derivatives():
    src = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([0, 2, 0, 1])
    for kind in KINDS:
        assert torch.autograd.gradgradcheck(ts.scatter, (src, index, 0, None, None, kind)), kind


def test_wrong_calls_are_told():
    x, index = torch.randn(3, 2), torch.tensor([0, 1, 5])
    with pytest.raises(IndexError, match=r"dim must be in \[-2, 2\).*\(3, 2\), got 2"):
        ts.scatter_sum(x, index, 2)
    with pytest.raises(RuntimeError, match="out of bounds"):
        ts.scatter_sum(x, index, 0, dim_size=3)
    with pytest.raises(ValueError, match="'sum', 'add', 'mul'.*got 'median'"):
        ts.scatter(x, index, reduce="median")
    with pytest.raises(ValueError, match=r"must not decrease.*\[0, 2, 1\]"):
        ts.segment_csr(x, torch.tensor([0, 2, 1]))
    with pytest.raises(ValueError, match=r"must not decrease.*\[4999, 4998, 4997,  \.\.\.,    2,    1,    0\]"):
        ts.segment_csr(torch.ones(5000), torch.arange(5000).flip(0))
    with pytest.raises(ValueError, match=r"from 1 to 2 dimensions.*\(1, 1, 3\)"):
        ts.segment_coo(x, index[None, None])
    with pytest.raises(ValueError, match="as many"):
        ts.gather_csr(x, torch.tensor([[0, 1, 2], [0, 1, 3], [0, 1, 2]]))


def test_calls_are_counted_and_compiled_by_torchscript():
    with gsb.enabled("torch_scatter"):
        import torch_scatter

        src, index = torch.randn(4, 3), torch.tensor([1, 0, 1, 1])

        @torch.jit.script
        def program(src: torch.Tensor, index: torch.Tensor):
            out = torch.zeros(2, 3)
            torch_scatter.scatter_sum(src, torch_scatter.utils.broadcast(index, src, -2), 0, out)
            return out, torch_scatter.scatter_max(src, index, dim=0)[1]

        out, at = program(src, index)
        assert torch.equal(out, torch_scatter.scatter(src, index, 0))
        assert torch.equal(at, torch_scatter.scatter_max(src, index, 0)[1])
        rows = gsb.status().to_dict()["calls"]["torch_scatter"]
        assert rows["scatter"]["ours"] == rows["scatter_max"]["ours"] == 1


@pytest.mark.parametrize("rows, width", [(6, 1), (700, 3), (9000, 16)])
@pytest.mark.parametrize("kind", ["min", "max"])
def test_extremes_without_their_places(kind, rows, width):
    """They are the values that come with places, NaN and infinities among them, and so are their gradients."""
    torch.manual_seed(rows)
    src = torch.randint(-3, 4, (rows, width)).double()
    for special in (torch.nan, torch.inf, -torch.inf):
        src[torch.rand(rows, width) < 0.1] = special
    size = rows // 4 + 1
    index = torch.randint(0, size, (rows,)).sort().values
    pointers = torch.searchsorted(index, torch.arange(size + 1))
    nothing = -np.inf if kind == "max" else np.inf
    expected, at = np.zeros((size, width)), np.full((size, width), -1)
    for row, (begin, end) in enumerate(zip(pointers.tolist(), pointers.tolist()[1:])):
        if begin == end:
            continue
        given = np.nan_to_num(src[begin:end].numpy(), nan=nothing, posinf=np.inf, neginf=-np.inf)
        place = given.argmax(0) if kind == "max" else given.argmin(0)
        found = given[place, np.arange(width)]
        expected[row] = np.where(found == nothing, 0, found)
        at[row] = np.where(found == nothing, -1, place + begin)
    grad = torch.randn(size, width, dtype=torch.float64)
    to = np.zeros((rows, width))
    some = at >= 0
    to[at[some], some.nonzero()[1]] = grad.numpy()[some]
    for reduced in (
        lambda x: ts.scatter(x, index, 0, dim_size=size, reduce=kind),
        lambda x: ts.segment_csr(x, pointers, reduce=kind),
    ):
        x = src.clone().requires_grad_()
        out = reduced(x)
        assert np.array_equal(out.detach().numpy(), expected) and np.array_equal(reduced(src).numpy(), expected)
        out.backward(grad)
        assert np.array_equal(x.grad.numpy(), to)
