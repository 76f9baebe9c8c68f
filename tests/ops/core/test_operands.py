"""Any tensor that a user can make works, or is refused in words."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core import operands
from gnn_sparse_backend.runtime import memory
from gnn_sparse_backend.runtime.layout import compact
from tests.ops.oracle import DTYPES, assert_right, graph_of, longest_row, random, sddmm_oracle, spmm_oracle


def unaligned(x: torch.Tensor, offset: int) -> torch.Tensor:
    """A copy of ``x`` at an address that is ``offset`` bytes past a 64-byte boundary."""
    size = x.numel() * x.element_size()
    buffer = np.zeros(size + 128, dtype=np.uint8)
    start = -buffer.ctypes.data % 64 + offset
    copy = torch.frombuffer(buffer.data, dtype=x.dtype, offset=start, count=x.numel()).view(x.shape)
    assert copy.data_ptr() % 64 == offset
    return copy.copy_(x)


def inside_wider(x):
    wide = torch.full((x.shape[0], x[0].numel() + 3), float("nan"), dtype=x.dtype)
    view = wide[:, 1:-2].view(x.shape) if x.dim() == 2 else wide.as_strided(x.shape, (wide.shape[1], *x[0].stride()), 1)
    return view.copy_(x)


def negated_lazily(x):
    view = torch.complex(torch.zeros_like(x).float(), -x.float()).conj().imag
    assert view.is_neg()
    return view.to(x.dtype)


def one_row_repeated(x):
    return x[:1].expand(x.shape)


def one_column_repeated(x):
    return x[..., :1].expand(x.shape)


VIEWS = {
    "every_second_row": lambda x: x.repeat_interleave(2, 0)[::2],
    "every_second_column": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "column_major": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "inside_wider": inside_wider,
    "one_row_repeated": one_row_repeated,
    "one_column_repeated": one_column_repeated,
    "one_number_repeated": lambda x: x.new_tensor(0.37).expand(x.shape),
    "overlapping_rows": lambda x: x.reshape(-1).as_strided(x.shape, (1, *x[0].stride())),
    "negated_lazily": negated_lazily,
    "flipped": lambda x: x.flip(0).flip(0),
    "parameter": torch.nn.Parameter,
    "offset_4": lambda x: unaligned(x, 4),
    "offset_8": lambda x: unaligned(x, 8),
    "offset_1": lambda x: unaligned(x, 1),
    "offset_60": lambda x: unaligned(x, 60),
    "from_numpy": lambda x: torch.from_numpy(x.detach().numpy().copy()) if x.dtype != torch.bfloat16 else x,
}


@pytest.mark.short(30)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(16,), (7,), (1,), (3, 8), (3, 1), (1, 5)], ids=str)
def test_views_of_features(zoo, view, dtype, shape):
    structure = zoo["last_rows_empty"]
    graph = graph_of(structure)
    x, u = (VIEWS[view](random(n, *shape, dtype=dtype, seed=n)) for n in (12, 25))
    assert_right(gsb.spmm(graph, x), spmm_oracle(structure, x), longest_row(structure))
    weight = random(30, *shape[:-1], dtype=dtype, seed=1)
    assert_right(gsb.spmm(graph, x, weight), spmm_oracle(structure, x, weight), longest_row(structure))
    assert_right(gsb.sddmm(graph, u, x), sddmm_oracle(structure, u, x), shape[-1])


def test_a_kernel_of_contiguous_operands_is_not_taken_for_views():
    """And strides of dimensions of extent 1, which say nothing, do not matter."""
    graph = gsb.Graph.from_coo(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), (2, 2))
    wide = torch.arange(12.0).view(2, 6)
    for x in (wide[:, :3].contiguous(), wide[:, :3], wide[:, 1:4], wide.t()[:2, :2]):
        torch.testing.assert_close(gsb.spmm(graph, x), torch.stack([x[0] + x[1], x[1]]))
        torch.testing.assert_close(gsb.sddmm(graph, x, x), torch.stack([x[0] @ x[0], x[0] @ x[1], x[1] @ x[1]]))
    one = gsb.Graph.from_coo(torch.tensor([0]), torch.tensor([0]), (1, 1))
    for shape, strides in (((1, 3), (99, 1)), ((1, 1), (7, 5))):
        x = torch.empty_strided(shape, strides).fill_(2.0)
        assert x.is_contiguous() and torch.equal(gsb.spmm(one, x), x)


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "parameter"])
@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
def test_views_of_weights(zoo, view, shape):
    structure = zoo["last_rows_empty"]
    if not shape and view == "inside_wider":
        weight = torch.full((40,), float("nan"))[5:35].copy_(random(30, dtype=torch.float32))
    else:
        weight = VIEWS[view](random(30, *shape, dtype=torch.float32))
    x = random(12, 3, 4, dtype=torch.float32, seed=1)
    y = gsb.spmm(graph_of(structure), x, weight)
    assert_right(y, spmm_oracle(structure, x, weight), longest_row(structure))


@pytest.mark.parametrize("view", ["one_number_repeated", "column_major", "inside_wider", "offset_4"])
def test_views_as_cotangents(zoo, view):
    structure = row, col, shape = zoo["last_rows_empty"]
    x, weight = random(12, 5, dtype=torch.float32, grad=True), random(30, dtype=torch.float32, seed=1, grad=True)
    cotangent = VIEWS[view](random(25, 5, dtype=torch.float32, seed=2))
    gsb.spmm(graph_of(structure), x, weight).backward(cotangent)
    reverse = (col, row, shape[::-1])
    assert_right(x.grad, spmm_oracle(reverse, cotangent, weight), longest_row(reverse))
    assert_right(weight.grad, sddmm_oracle(structure, cotangent, x), 5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operands_of_a_gpu_begin_where_a_vector_may(dtype):
    """Its kernels load up to 16 bytes at a time. What lies right stays where it is."""
    x = random(6, 4, dtype=dtype)
    for offset in (0, 16, 48):
        there = unaligned(x, offset)
        assert compact(there) is there
    for offset in (8, 24, 60 if x.element_size() < 8 else 56):
        found = compact(unaligned(x, offset))
        assert found.data_ptr() % 16 == 0 and torch.equal(found, x)


def test_inputs_are_not_written_to_and_outputs_are_new(zoo):
    graph = graph_of(zoo["self_loops"])
    x, weight = random(6, 3), torch.ones(6, dtype=torch.float64)
    before = x.clone(), weight.clone()
    y = gsb.spmm(graph, x, weight)
    torch.testing.assert_close(y, x)
    y.zero_()
    gsb.spmm(graph, x).zero_()
    assert torch.equal(x, before[0]) and torch.equal(weight, before[1])


class Tagged(torch.Tensor):
    """A subclass that changes nothing."""


def test_subclasses(zoo):
    structure = zoo["random"]
    graph = graph_of(structure)
    x, weight = random(29, 3), random(200, seed=1)
    y = gsb.spmm(graph, x.as_subclass(Tagged), weight)
    assert type(y) is Tagged
    torch.testing.assert_close(y.as_subclass(torch.Tensor), gsb.spmm(graph, x, weight))
    leaf, plain = x.clone().requires_grad_(), x.clone().requires_grad_()
    gsb.spmm(graph, leaf.as_subclass(Tagged), weight, "mean").pow(2).sum().backward()
    gsb.spmm(graph, plain, weight, "mean").pow(2).sum().backward()
    torch.testing.assert_close(leaf.grad, plain.grad)


def test_a_dispatch_mode_sees_the_operator(zoo):
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    graph = graph_of(zoo["random"])
    with Record():
        gsb.spmm(graph, random(29, 3))
        gsb.sddmm(graph, random(33, 3), random(29, 3))
    assert {"gsb.spmm.default", "gsb.sddmm.default"} <= set(seen)


def test_meta_tensors_give_shapes(zoo):
    graph = graph_of(zoo["random"])
    y = gsb.spmm(graph, torch.empty(29, 2, 3, device="meta"))
    assert y.is_meta and y.shape == (33, 2, 3)


@pytest.mark.parametrize(
    "first, second, wider",
    [
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float16, torch.bfloat16, torch.float32),
        (torch.float32, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
    ],
)
def test_autocast_widens_and_keeps_types(zoo, first, second, wider):
    graph = graph_of(zoo["random"])
    x, weight = random(29, 3, dtype=first, grad=True), random(200, dtype=second, grad=True)
    u = random(33, 3, dtype=second)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, z = gsb.spmm(graph, x, weight), gsb.sddmm(graph, u, x)
    assert y.dtype == z.dtype == wider
    torch.testing.assert_close(y, gsb.spmm(graph, x.to(wider), weight.to(wider)))
    (y.sum() + z.sum()).backward()
    assert x.grad.dtype == first and weight.grad.dtype == second


X, W, U = torch.zeros(29, 2), torch.zeros(200), torch.zeros(33, 2)
SPMM_REFUSALS = {
    "numpy": ((X.numpy(),), TypeError, r"x must be a torch tensor, got ndarray; wrap it in torch.as_tensor"),
    "list": (([[1.0]],), TypeError, "got list"),
    "none": ((None,), TypeError, "x must be a torch tensor, got NoneType"),
    "int": (
        (X.long(),),
        TypeError,
        r"float32, float64, bfloat16 or float16, got torch.int64; convert it with x.float\(\)",
    ),
    "bool": ((X.bool(),), TypeError, "torch.bool"),
    "complex": (
        (X.cfloat(),),
        TypeError,
        r"got torch.complex64; give x.real and x.imag apart, or torch.view_as_real\(x\), which has both",
    ),
    "quantised": (
        (torch.quantize_per_tensor(X, 1.0, 0, torch.quint8),),
        TypeError,
        r"got torch.quint8; convert it with x.dequantize\(\)",
    ),
    "float8": ((X.to(torch.float8_e4m3fn),), TypeError, "torch.float8_e4m3fn"),
    "sparse": ((X.to_sparse(),), TypeError, r"dense tensor, got layout torch.sparse_coo; use x.to_dense\(\)"),
    "vector": ((torch.zeros(29),), ValueError, r"\(n, F\) or \(n, H, D\), got \(29,\); use x.unsqueeze\(1\)"),
    "4-d": ((torch.zeros(29, 1, 1, 1),), ValueError, r"got \(29, 1, 1, 1\)"),
    "rows": ((X[:-1],), ValueError, r"x must have 29 rows, one per source of the graph, got shape \(28, 2\)"),
    "more rows": ((torch.zeros(30, 2),), ValueError, "x must have 29 rows"),
    "weight rows": (
        (X, W[1:]),
        ValueError,
        r"weight must have 200 rows, one per edge of the graph, got shape \(199,\)",
    ),
    "weight numpy": ((X, W.numpy()), TypeError, "weight must be a torch tensor, got ndarray"),
    "weight number": ((X, 2.0), TypeError, "weight must be a torch tensor, got float"),
    "weight int": ((X, W.long()), TypeError, "weight must be float32"),
    "weight type": (
        (X, W.double()),
        TypeError,
        r"x is torch.float32 but weight is torch.float64; .*weight.to\(torch.float32\)",
    ),
    "weight 0-d": ((X, torch.tensor(1.0)), ValueError, r"must have shape \(E,\) or \(E, 1\), got \(\)"),
    "weight heads": ((X, torch.zeros(200, 2)), ValueError, r"\(E,\) or \(E, 1\), got \(200, 2\)"),
    "weight wrong heads": (
        (torch.zeros(29, 3, 2), torch.zeros(200, 2)),
        ValueError,
        r"\(E, 1\) or \(E, 3\), got \(200, 2\)",
    ),
    "weight 3-d": ((torch.zeros(29, 3, 2), torch.zeros(200, 3, 1)), ValueError, r"got \(200, 3, 1\)"),
    "reduce": ((X, None, "mul"), ValueError, "reduce must be 'sum', 'mean', 'prod', 'max' or 'min', got 'mul'"),
    "reduce type": ((X, None, []), ValueError, r"reduce must be 'sum', 'mean', 'prod', 'max' or 'min', got \[\]"),
}


@pytest.mark.parametrize("case", SPMM_REFUSALS)
def test_spmm_refuses(zoo, case):
    arguments, error, words = SPMM_REFUSALS[case]
    with pytest.raises(error, match="spmm: .*" + words):
        gsb.spmm(graph_of(zoo["random"]), *arguments)


def without_memory(bytes_needed: int) -> str:
    return rf"takes {bytes_needed:,} bytes, and this machine has [\d,]+ bytes of memory; give fewer nodes"


def test_sizes_that_no_memory_holds_are_refused_in_words(zoo):
    graph, far = graph_of(zoo["random"]), 2**50
    repeated = torch.zeros(1, 1).expand(29, far)
    with pytest.raises(
        MemoryError, match=r"spmm: x, written out in torch.float32, of shape \(29, .*" + without_memory(29 * far * 4)
    ):
        gsb.spmm(graph, repeated)
    with pytest.raises(MemoryError, match=r"spmm: x, .*" + without_memory(29 * far * 4)):
        gsb.spmm(graph, repeated.unsqueeze(1))
    with pytest.raises(MemoryError, match="sddmm: u, .*" + without_memory(33 * far * 4)):
        gsb.sddmm(graph, repeated[:1].expand(33, far), repeated)
    rows, features = torch.empty(29, 2**25, 1)[:, :: 2**20], torch.zeros(1).expand(200, 1, 2**25)[..., :: 2**20]
    assert gsb.gspmm(graph, "mul", "sum", rows, features).shape == (33, 32, 32), "broadcast, and small enough"
    wide = torch.zeros(0, 2**40)
    empty = gsb.Graph.from_coo(torch.tensor([]).long(), torch.tensor([]).long(), (100, 0))
    with pytest.raises(
        MemoryError, match=r"a result in torch.float32 of shape \(100, .*" + without_memory(100 * 2**42)
    ):
        gsb.spmm(empty, wide)
    with pytest.raises(MemoryError, match="an array of offsets of shape .*" + without_memory((far + 1) * 8)):
        gsb.Graph.from_coo(torch.tensor([0]), torch.tensor([0]), (far, 1))
    with pytest.raises(ValueError, match="number of sources must be less than 2..63, got 9223372036854775808"):
        gsb.Graph.from_coo(torch.tensor([0]), torch.tensor([0]), (1, 2**63))


def test_a_mapped_file_may_be_larger_than_memory(monkeypatch, tmp_path):
    """A tensor that has all its numbers in its storage is read where it is, so nothing has to fit."""
    x = torch.from_file(str(tmp_path / "x"), shared=True, size=29 * 8, dtype=torch.float32).view(29, 8)
    for module in (operands, memory):
        monkeypatch.setattr(module, "MEMORY", 100)
    operands.check_written_out("spmm", "x", x)
    with pytest.raises(MemoryError, match=r"spmm: x, written out in torch.float32, of shape \(29, 8\) takes 928 bytes"):
        operands.check_written_out("spmm", "x", torch.zeros(1, 8).expand(29, 8))


def test_the_meta_device_and_another_do_not_mix(zoo):
    graph, meta = graph_of(zoo["random"]), X.to("meta")
    words = "is on the meta device and has no values, but {} is on cpu; put all of them on one device"
    for call, named in (
        (lambda: gsb.spmm(graph, X.clone().requires_grad_(), W.to("meta")), "weight " + words.format("x")),
        (lambda: gsb.spmm(graph, meta, W), "x " + words.format("weight")),
        (lambda: gsb.spmm(graph, meta, W, "max"), "x " + words.format("weight")),
        (lambda: gsb.sddmm(graph, U, meta), "v " + words.format("u")),
        (lambda: gsb.gsddmm(graph, "add", meta, U), "lhs " + words.format("rhs")),
        (lambda: gsb.attention(graph, U, meta, X), "key " + words.format("query")),
        (lambda: gsb.gat_attention(graph, torch.zeros(33), X[:, 0], meta), "value " + words.format("dst_scores")),
    ):
        with pytest.raises(ValueError, match=named):
            call()


def test_a_width_of_zero_is_an_empty_result(zoo):
    structure = zoo["random"]
    graph = graph_of(structure)
    for shape in ((0,), (2, 0), (0, 3)):
        x, u = torch.zeros(29, *shape, requires_grad=True), torch.zeros(33, *shape, requires_grad=True)
        for reduce in ("sum", "mean", "max", "min"):
            out = gsb.spmm(graph, x, reduce=reduce)
            assert out.shape == (33, *shape)
            assert torch.autograd.grad(out.sum(), x)[0].shape == x.shape
        dots = gsb.sddmm(graph, u, x)
        assert torch.equal(dots, torch.zeros(200, *shape[:-1]))
        assert [g.shape for g in torch.autograd.grad(dots.sum(), (u, x))] == [u.shape, x.shape]


SDDMM_REFUSALS = {
    "numpy": ((U, X.numpy()), TypeError, "v must be a torch tensor, got ndarray"),
    "int": ((U.long(), X), TypeError, "u must be float32"),
    "types": ((U, X.double()), TypeError, "u is torch.float32 but v is torch.float64"),
    "swapped": ((X, U), ValueError, r"u must have 33 rows, one per destination of the graph, got shape \(29, 2\)"),
    "rows": ((U, X[1:]), ValueError, "v must have 29 rows, one per source"),
    "widths": ((U, X[:, :1]), ValueError, r"agree but for their first dimension, got \(33, 2\) and \(29, 1\)"),
    "dimensions": ((U, X[:, None]), ValueError, "agree but for their first dimension"),
}


@pytest.mark.parametrize("case", SDDMM_REFUSALS)
def test_sddmm_refuses(zoo, case):
    arguments, error, words = SDDMM_REFUSALS[case]
    with pytest.raises(error, match="sddmm: .*" + words):
        gsb.sddmm(graph_of(zoo["random"]), *arguments)


def test_what_is_no_graph_is_refused():
    for operator, arguments in ((gsb.spmm, (X,)), (gsb.sddmm, (U, X))):
        with pytest.raises(TypeError, match="graph must be a gsb.Graph, got Tensor; make one with Graph.from_csr"):
            operator(torch.eye(29), *arguments)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_cuda_graphs_are_moved_and_operands_are_not(zoo):
    graph = graph_of(zoo["random"])
    with pytest.raises(ValueError, match="x is on cuda:0 but the graph is on cpu"):
        gsb.spmm(graph, X.cuda())
    moved = graph.to("cuda")
    assert moved.same_structure(graph) and moved.transpose().same_structure(graph.transpose())
