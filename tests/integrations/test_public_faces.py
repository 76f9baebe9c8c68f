"""Every public name of the libraries that need no binary here is there, and each function takes the types that the
original's C++ takes on a CPU, against PyTorch in float64, forward and backward.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import torch_cluster, torch_scatter, torch_sparse, torch_spline_conv
from gnn_sparse_backend.integrations.pyg_lib import ops
from gnn_sparse_backend.planner.cpu.listed import FEW

_SEGMENTS = "sum", "add", "mean", "min", "max"
_REDUCTIONS = (
    *(f"scatter_{kind}" for kind in (*_SEGMENTS, "mul", "std", "logsumexp", "softmax", "log_softmax")),
    *(f"segment_{kind}_{by}" for kind in _SEGMENTS for by in ("csr", "coo")),
    *("scatter", "segment_csr", "segment_coo", "gather_csr", "gather_coo"),
)
NAMES = {
    "torch_scatter": (*_REDUCTIONS, "__version__"),
    "torch_scatter.composite": ("scatter_std", "scatter_logsumexp", "scatter_softmax", "scatter_log_softmax"),
    "torch_scatter.utils": ("broadcast",),
    "torch_cluster": """graclus_cluster grid_cluster fps nearest knn knn_graph radius radius_graph random_walk
        neighbor_sampler __version__""".split(),
    "torch_spline_conv": "spline_basis spline_weighting spline_conv __version__".split(),
    "torch_sparse": """SparseStorage SparseTensor t narrow __narrow_diag__ select index_select index_select_nnz
        masked_select masked_select_nnz permute remove_diag set_diag fill_diag get_diag add add_ add_nnz add_nnz_ mul
        mul_ mul_nnz mul_nnz_ sum mean min max matmul cat random_walk partition reverse_cuthill_mckee saint_subgraph
        to_torch_sparse from_torch_sparse to_scipy from_scipy coalesce transpose eye spmm spspmm spadd sample
        sample_adj __version__""".split(),
    "torch_sparse.storage": ("SparseStorage",),
    "torch_sparse.tensor": ("SparseTensor",),
    "pyg_lib": ("cuda_version", "get_home_dir", "set_home_dir", "__version__"),
    "pyg_lib.ops": (
        *_REDUCTIONS,
        *"""grouped_matmul segment_matmul sampled_add sampled_sub sampled_mul sampled_div index_sort softmax_csr
        spline_basis spline_weighting grid_cluster fps knn radius nearest graclus_cluster edge_sample""".split(),
    ),
    "pyg_lib.sampler": ("neighbor_sample", "hetero_neighbor_sample", "subgraph", "random_walk"),
    "pyg_lib.partition": ("metis",),
    "torch_scatter.scatter": ("scatter", "scatter_sum", "scatter_add", "scatter_mul", "scatter_mean", "scatter_max"),
    "torch_scatter.segment_csr": ("segment_csr", "gather_csr"),
    "torch_scatter.segment_coo": ("segment_coo", "gather_coo"),
    **{f"torch_cluster.{name}": () for name in "fps graclus grid knn nearest radius rw sampler testing".split()},
    **{
        f"torch_sparse.{name}": ()
        for name in """add bandwidth cat coalesce convert diag eye index_select masked_select matmul metis mul narrow
        permute reduce rw saint sample select spadd spmm spspmm testing transpose utils""".split()
    },
}
"""Modules, and what they give."""

FLOATS = torch.float32, torch.float64
REAL = *FLOATS, torch.float16, torch.bfloat16
INTEGERS = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
SPLINES = *FLOATS, torch.bfloat16
SIZE = 5
SORTED = torch.tensor([0, 0, 0, 2, 2, 2, 4])
POINTERS = torch.tensor([0, 3, 3, 6, 6, 7])
INDEX = torch.tensor([0, 2, 2, 0, 4, 2, 0])
EDGES = torch.tensor([[0, 0, 1, 3, 4], [1, 6, 2, 0, 5]])


def reduced(x: Tensor, index: Tensor, kind: str, rounding: str | None = None) -> Tensor:
    """The reduction by rows of float64, 0 where there are none, and 1 of products. rounding: of means without a
    gradient.
    """
    rounding = None if x.requires_grad else rounding
    by = {"sum": "sum", "add": "sum", "mean": "sum", "mul": "prod", "min": "amin", "max": "amax"}[kind]
    start = x.new_full((SIZE, *x.shape[1:]), 1.0 if kind == "mul" else 0.0)
    found = start.scatter_reduce(0, index[:, None].expand_as(x), x, by, include_self=kind == "mul")
    if kind != "mean":
        return found
    return torch.div(found, torch.bincount(index, minlength=SIZE).clamp(min=1)[:, None], rounding_mode=rounding)


def by_row(x: Tensor, index: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """What a function of rows makes of those of each number, in their places."""
    found = torch.empty_like(x)
    for row in index.unique():
        found = found.index_put(((index == row).nonzero()[:, 0],), function(x[index == row]))
    return found


def deviation(x: Tensor) -> Tensor:
    """The deviation of numbers as torch-scatter defines it: a divisor is never 0."""
    return ((x - x.mean(0)).square().sum(0) / (len(x) - 1 + 1e-6)).sqrt()


def first(found: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """An extreme without its places."""
    return found[0] if isinstance(found, tuple) else found


def cases() -> dict[str, tuple[tuple[torch.dtype, ...], Callable, Callable]]:
    """By name: the types, the function, and what it computes, of numbers (7, 3)."""
    found: dict[str, tuple] = {}
    every = *REAL, *INTEGERS
    for library, of in (("torch_scatter", torch_scatter), ("pyg_lib", ops)):
        for kind in (*_SEGMENTS, "mul"):
            floor, trunc = (lambda x, index, kind, how=how: reduced(x, index, kind, how) for how in ("floor", "trunc"))
            types = every if library == "torch_scatter" or kind != "mean" else REAL
            f = getattr(of, f"scatter_{kind}")
            call = lambda x, f=f: first(f(x, INDEX, 0, dim_size=SIZE))
            found[f"{library} scatter_{kind}"] = types, call, lambda x, r=floor, k=kind: r(x, INDEX, k)
            if kind == "mul":
                continue
            for by, at in (("csr", POINTERS), ("coo", SORTED)):
                more = {} if by == "csr" else {"dim_size": SIZE}
                f = getattr(of, f"segment_{kind}_{by}")
                call = lambda x, f=f, at=at, more=more: first(f(x, at, **more))
                found[f"{library} segment_{kind}_{by}"] = types, call, lambda x, r=trunc, k=kind: r(x, SORTED, k)
        for by, at in (("csr", POINTERS), ("coo", SORTED)):
            f = getattr(of, f"gather_{by}")
            call = lambda x, f=f, at=at: f(x[:SIZE], at)
            found[f"{library} gather_{by}"] = every, call, lambda x: x[:SIZE][SORTED]
        for name, function in (
            ("softmax", partial(torch.softmax, dim=0)),
            ("log_softmax", partial(torch.log_softmax, dim=0)),
        ):
            f = getattr(of, f"scatter_{name}")
            call = lambda x, f=f: f(x, INDEX, 0)
            found[f"{library} scatter_{name}"] = REAL, call, lambda x, f=function: by_row(x, INDEX, f)
        found[f"{library} scatter_logsumexp"] = (
            REAL,
            lambda x, f=of.scatter_logsumexp: f(x, INDEX, 0, dim_size=SIZE)[[0, 2, 4]],
            lambda x: torch.stack([torch.logsumexp(x[INDEX == row], 0) for row in (0, 2, 4)]),
        )
        found[f"{library} scatter_std"] = (
            REAL,
            lambda x, f=of.scatter_std: f(x[INDEX < 4], INDEX[INDEX < 4] // 2, 0),
            lambda x: torch.stack([deviation(x[INDEX == row]) for row in (0, 2)]),
        )
    weight = torch.tensor([[[1.0, -2.0], [0.5, 0.0], [2.0, 1.0]]] * SIZE) * torch.arange(1.0, 1 + SIZE)[:, None, None]
    product = lambda x: torch.stack([row @ weight[at].to(x) for row, at in zip(x, SORTED)])
    found["pyg_lib segment_matmul"] = FLOATS, lambda x: ops.segment_matmul(x, POINTERS, weight.to(x)), product
    found["pyg_lib grouped_matmul"] = (
        FLOATS,
        lambda x: torch.cat(ops.grouped_matmul([x[:3], x[3:]], [weight[0].to(x), weight[2].to(x)])),
        lambda x: torch.cat([x[:3] @ weight[0].to(x), x[3:] @ weight[2].to(x)]),
    )
    for name in ("add", "sub", "mul", "div"):
        how, types = getattr(torch, name), REAL if name == "div" else every
        f = getattr(ops, f"sampled_{name}")
        call = lambda x, f=f: f(x, x[:2] * 0 + 2, None, INDEX // 4)
        found[f"pyg_lib sampled_{name}"] = types, call, lambda x, how=how: how(x, torch.full_like(x, 2))
    found["pyg_lib softmax_csr"] = (
        FLOATS,
        lambda x: ops.softmax_csr(x, POINTERS),
        lambda x: by_row(x, SORTED, partial(torch.softmax, dim=0)),
    )
    found["pyg_lib index_sort"] = INTEGERS, lambda x: ops.index_sort(x[:, 0])[0], lambda x: x[:, 0].sort()[0]
    sizes = torch.tensor([4, 3, 4]), torch.ones(3, dtype=torch.uint8)
    of_weights = lambda x: torch.arange(1.0, 4.0).to(x)[:, None, None].expand(3, 3, 2) / 4
    for library, of in (("torch_spline_conv", torch_spline_conv), ("pyg_lib", ops)):
        basis = lambda x, f=of.spline_basis: f(x.detach() / 24 + 0.5, *sizes, 1)[0].sum(1, keepdim=True) * x
        found[f"{library} spline_basis"] = SPLINES, basis, lambda x: x
        rows = torch.tensor([[0, 1], [2, 1], [0, 0], [1, 2], [2, 2], [1, 1], [0, 2]])
        found[f"{library} spline_weighting"] = (
            SPLINES,
            lambda x, f=of.spline_weighting, rows=rows: f(x, of_weights(x), x.new_full((7, 2), 0.5), rows),
            lambda x, rows=rows: torch.einsum("es,ei,esio->eo", x.new_full((7, 2), 0.5), x, of_weights(x)[rows]),
        )
    matrix = torch.zeros(SIZE, 7, dtype=torch.float64).index_put(tuple(EDGES), torch.tensor(1.0).double())
    for kind in ("sum", "mean", "min", "max"):
        given = torch_sparse.SparseTensor(row=EDGES[0], col=EDGES[1], sparse_sizes=(SIZE, 7))
        found[f"torch_sparse matmul {kind}"] = (
            every if kind != "mean" else REAL,
            lambda x, given=given, kind=kind: torch_sparse.matmul(given, x, kind),
            lambda x, kind=kind: reduced(x[EDGES[1]], EDGES[0], kind),
        )
    found["torch_sparse spmm"] = (
        every,
        lambda x: torch_sparse.spmm(EDGES, torch.ones(5, dtype=x.dtype), SIZE, 7, x),
        lambda x: matrix @ x,
    )
    others = torch.arange(7).repeat_interleave(3), torch.arange(3).repeat(7)
    found["torch_sparse spspmm"] = (
        (*FLOATS, torch.int32, torch.int64),
        lambda x: torch_sparse.matmul(
            torch_sparse.SparseTensor(
                row=EDGES[0], col=EDGES[1], value=torch.ones(5, dtype=x.dtype), sparse_sizes=(SIZE, 7)
            ),
            torch_sparse.SparseTensor(row=others[0], col=others[1], value=x.reshape(-1), sparse_sizes=(7, 3)),
        ).to_dense(),
        lambda x: matrix @ x,
    )
    found["torch_sparse coalesce"] = (
        every,
        lambda x: torch_sparse.coalesce(torch.stack([SORTED, SORTED // 2]), x, SIZE, SIZE)[1],
        lambda x: reduced(x, SORTED, "sum")[[0, 2, 4]],
    )
    return found


CASES = cases()


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_is_there(module):
    with gsb.enabled("torch_scatter", "torch_cluster", "torch_sparse", "torch_spline_conv", "pyg_lib"):
        given = importlib.import_module(module)
        assert [name for name in NAMES[module] if not hasattr(given, name)] == []


@pytest.mark.parametrize("few", (True, False), ids=("operators", "kernels"))
@pytest.mark.parametrize("name", CASES)
@pytest.mark.short(6)
def test_types(name, few, monkeypatch):
    """few: whether calls of a few numbers are left to PyTorch's operators, which all of these are."""
    before = FEW.features
    FEW.set(before if few else 0)
    try:
        types, function, expected = CASES[name]
        whole = (torch.randperm(21, generator=torch.Generator().manual_seed(0)) - 6).view(7, 3).double()
        whole += whole >= 0  # an extreme that is 0 would share its gradient with the reference's start
        for dtype in types:
            given = whole.abs() if dtype is torch.uint8 else whole if dtype in INTEGERS else whole / 4
            given = (given / 8 if "scatter_mul" in name and dtype in REAL else given).requires_grad_(dtype in REAL)
            x = given.detach().to(dtype).requires_grad_(dtype in REAL)
            found, wanted = function(x), expected(given)
            assert found.dtype is dtype
            limits = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5}
            limit = limits.get(dtype, 1e-10)
            if dtype in INTEGERS:
                wanted = wanted.long().to(dtype)  # of 8 bits sums wrap around
            torch.testing.assert_close(found.double(), wanted.double(), atol=limit, rtol=limit, msg=f"{dtype}")
            if dtype in REAL:
                grad = torch.arange(1.0, 1 + wanted.numel()).view(wanted.shape).double() / wanted.numel()
                (of_found,), (of_wanted,) = (
                    torch.autograd.grad(out, at, grad.to(out.dtype)) for out, at in ((found, x), (wanted, given))
                )
                assert of_found.dtype is dtype
                torch.testing.assert_close(
                    of_found.double(), of_wanted, atol=2 * limit, rtol=2 * limit, msg=f"gradient, {dtype}"
                )
    finally:
        FEW.set(before)


@pytest.mark.parametrize("dtype", (*REAL, *INTEGERS), ids=str)
def test_types_of_points(dtype):
    """Whole coordinates: what is near to what is the same in all types."""
    whole = torch.tensor([[0, 0], [3, 1], [1, 0], [9, 9], [8, 9], [3, 2]])
    x, batch = whole.to(dtype), torch.tensor([0, 0, 0, 1, 1, 1])
    ptr = torch.tensor([0, 3, 6])
    squares = (whole[:, None] - whole).square().sum(2).double().masked_fill(batch[:, None] != batch, torch.inf)
    nearest = squares.sort(stable=True).indices[:, :2]
    for edges in (torch_cluster.knn(x, x, 2, batch, batch), ops.knn(x, x, 2, ptr, ptr)):
        assert edges[1].view(6, 2).tolist() == nearest.tolist()
    for edges in (torch_cluster.radius(x, x, 2.5, batch, batch), ops.radius(x, x, 2.5, ptr, ptr)):
        assert sorted(map(tuple, edges.t().tolist())) == [tuple(e) for e in (squares < 6.25).nonzero().tolist()]
    assert torch_cluster.nearest(x, x, batch, batch).tolist() == ops.nearest(x, x, ptr, ptr).tolist() == [*range(6)]
    cells = torch_cluster.grid_cluster(x, torch.tensor([3, 3]).to(dtype))
    assert len(cells.unique()) == 4 and cells[0] == cells[2] and cells[3] != cells[5]
    for found in (torch_cluster.fps(x, batch, 0.6, False), ops.fps(x, ptr, 0.6, False)):
        assert found.tolist() == [0, 1, 3, 5]
    row, col = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    pairs = torch_cluster.graclus_cluster(row, col, torch.tensor([1, 1, 9, 9]).to(dtype))
    assert pairs[0] != pairs[2] and (pairs[1] in (pairs[0], pairs[2]))
