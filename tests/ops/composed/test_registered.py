"""Products in formats of users, and in nm(n, m): values, gradients of both orders, types, infinities, and on a GPU."""

import functools

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler import Buffer, FormatRewriteRule, Size, dense_fixed, sparse_variable
from gnn_sparse_backend.formats import Indices, decompose
from gnn_sparse_backend.formats.composed.decompose import transposed
from tests.formats.own import bitmap, columns_of_eight, ends, infer_bitmap, infer_columns
from tests.ops.composed.test_products import close, matrix, randn
from tests.ops.recorded_code import Kernels

FORMATS = (
    ["bitmap(8)"],
    ["columns(8)", "bitmap(5)"],
    ["dbsr(4)", "columns(3)", "csr"],
    ["nm(2, 4)", "bitmap(8)"],
    ["bsr(8)", "nm(1, 3)", "columns(4)"],
)
every_format = pytest.mark.parametrize("formats", FORMATS, ids=" + ".join)


@pytest.fixture(autouse=True)
def registered():
    gsb.formats.register("bitmap", bitmap, infer_bitmap)
    gsb.formats.register("columns", columns_of_eight, infer_columns)
    yield
    gsb.formats.unregister("bitmap")
    gsb.formats.unregister("columns")


def pruned(m, n, keep=2, of=4):
    """At most ``keep`` of ``of`` neighbours, but for a full corner, and rows without any."""
    dense = randn(m, -(-n // of), of, seed=3)
    kept = dense.abs().topk(keep, dim=-1).indices
    dense = torch.zeros_like(dense).scatter(-1, kept, dense.gather(-1, kept)).view(m, -1)[:, :n].contiguous()
    dense[2:5, :of] = 1.5
    dense[m - m // 4 :] = 0
    return dense


@every_format
@pytest.mark.parametrize(
    "dtype, index, m, n, width",
    [
        (torch.float32, torch.int32, 29, 23, 70),
        (torch.float64, torch.int64, 40, 17, 1),
        (torch.bfloat16, torch.int64, 32, 16, 20),
        (torch.float16, torch.int32, 7, 9, 33),
    ],
)
def test_values(formats, dtype, index, m, n, width):
    dense = pruned(m, n)
    csr = dense.to_sparse_csr()
    graph = gsb.Graph.from_csr(csr.crow_indices().to(index), csr.col_indices().to(index), (m, n))
    parts = decompose(graph, formats, fill=0.2)
    values = parts.values_of(dense).to(dtype)
    exact = parts.to_dense(values.double())
    x, tokens, u = randn(n, width, dtype=dtype), randn(3, width, n, dtype=dtype), randn(m, width, dtype=dtype)
    close(gsb.composed_spmm(parts, values, x), exact @ x.double(), dtype)
    close(gsb.composed_linear(parts, values, tokens), tokens.double() @ exact.T, dtype)
    close(gsb.composed_sddmm(parts, u, x), parts.values_of(u.double() @ x.double().T), dtype)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_few_columns_of_rows_with_equally_many(dtype, index):
    """Elements of a row in lanes, which several rounds fill and some are left of; and columns padded to a vector."""
    dense = pruned(13, 83)
    csr = dense.to_sparse_csr()
    graph = gsb.Graph.from_csr(csr.crow_indices().to(index), csr.col_indices().to(index), dense.shape)
    parts = decompose(graph, ["nm(2, 4)", "csr"], fill=0.2)
    values = parts.values_of(dense).to(dtype).requires_grad_()
    exact = parts.to_dense(values.detach().double())
    for width in (1, 2, 3, 8):
        x, tokens = randn(83, width, dtype=dtype).requires_grad_(), randn(width, 83, dtype=dtype)
        y = gsb.composed_spmm(parts, values, x)
        close(y, exact @ x.double(), dtype)
        close(gsb.composed_linear(parts, values, tokens), tokens.double() @ exact.T, dtype)
        flowing = randn(13, width, dtype=dtype)
        to_values, to_x = torch.autograd.grad(y, (values, x), flowing)
        close(to_x, exact.T @ flowing.double(), dtype)
        close(to_values, parts.values_of(flowing.double() @ x.detach().double().T), dtype)
    x = randn(83, 3, dtype=dtype)
    x[1] = torch.inf
    found, wanted = gsb.composed_spmm(parts, values.detach(), x), (dense != 0)[:, 1]
    assert torch.equal(found.isfinite().all(1), ~wanted)


@every_format
def test_gradients_of_both_orders(formats):
    dense = pruned(9, 7)
    parts = decompose(dense, formats, fill=0.2)
    values = parts.values_of(dense).requires_grad_()
    x, tokens, u = (randn(*shape).requires_grad_() for shape in ((7, 3), (3, 7), (9, 3)))
    for product, operands in (
        (gsb.composed_spmm, (values, x)),
        (gsb.composed_linear, (values, tokens)),
        (gsb.composed_sddmm, (u, x)),
    ):
        assert torch.autograd.gradcheck(functools.partial(product, parts), operands)
        assert torch.autograd.gradgradcheck(functools.partial(product, parts), operands, fast_mode=True)


@every_format
@pytest.mark.parametrize("special", [float("inf"), float("nan")])
def test_infinities_stay_with_their_non_zeros(formats, special):
    dense = pruned(29, 23)
    parts = decompose(dense, formats, fill=0.2)
    values, x = parts.values_of(dense), randn(23, 6)
    x[11] = special
    want = torch.stack([row[row != 0] @ x[row != 0] for row in dense])
    close(gsb.composed_spmm(parts, values, x), want, torch.float64)
    close(gsb.composed_linear(parts, values, x.T), want.T, torch.float64)


@every_format
def test_tokens_in_slices(formats):
    dense = pruned(70, 99)
    parts = decompose(dense, formats, fill=0.2)
    values, x = parts.values_of(dense).float().requires_grad_(), randn(300, 99, dtype=torch.float32).requires_grad_()
    y = gsb.composed_linear(parts, values, x)
    assert "composed_sliced" in str(gsb.last_run())
    close(y.detach(), x.detach().double() @ dense.T, torch.float32)
    g = randn(300, 70, seed=5, dtype=torch.float32)
    y.backward(g)
    close(x.grad, g.double() @ dense, torch.float32)
    torch.testing.assert_close(
        values.grad.double(), parts.values_of(g.double().T @ x.detach().double()), rtol=1e-3, atol=1e-3
    )


def test_n_of_m_takes_groups_that_have_no_more():
    dense = pruned(16, 10)
    parts, taken = decompose(dense, ["nm(2, 4)", "csr"]), int((dense != 0).sum()) - 12
    assert [(str(p.spec), p.stored, p.nnz) for p in parts.pieces] == [
        ("nm(2, 4)", (16, 3, 2), taken),
        ("csr", (12,), 12),
    ]
    assert [str(piece.spec) for piece in transposed(decompose(pruned(16, 8, 1), "nm(4, 4)")).pieces] == ["nm(4, 4)"]
    assert [str(piece.spec) for piece in decompose(dense, ["nm(2, 4)", "csr"], fill=0.9).pieces] == ["csr"]
    with pytest.raises(ValueError, match=r"nm\(2, 4\) is the last format and leaves 12 non-zeros"):
        decompose(dense, "nm(2, 4)")
    with pytest.raises(
        ValueError, match=r"format 'nm\(3, 2\)': nm\(n, m\) keeps n of m neighbouring columns, .*3 of 2"
    ):
        decompose(dense, "nm(3, 2)")


def test_what_the_last_format_leaves_of_the_transpose_is_in_csr():
    dense = pruned(16, 12)
    dense[2:5, :4] = 0
    dense[:4, 3] = 1
    dense[:4, :3] = 0
    parts = decompose(dense, "nm(2, 4)")
    assert [str(piece.spec) for piece in transposed(parts).pieces] == ["nm(2, 4)", "csr"]
    values, x = parts.values_of(dense), randn(12, 5).requires_grad_()
    g = randn(16, 5, seed=2)
    gsb.composed_spmm(parts, values, x).backward(g)
    close(x.grad, dense.T @ g, torch.float64)


def test_traced_programs_find_the_format_again():
    dense = pruned(9, 7)
    parts = decompose(dense, ["columns(4)", "bitmap(8)"])
    packed, x = parts.pack(parts.values_of(dense)), randn(5, 7).requires_grad_()

    def layer(x):
        return gsb.composed_linear(parts, packed, x, packed=True).sin()

    got = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    close(got.detach(), layer(x).detach(), torch.float64)


@every_format
def test_as_on_a_gpu(formats, serial_gpu):
    dense = pruned(29, 23)
    parts = decompose(dense, formats, fill=0.2)
    values, x = parts.values_of(dense).float().requires_grad_(), randn(23, 33, dtype=torch.float32).requires_grad_()
    u, g = randn(29, 33, dtype=torch.float32), randn(29, 33, seed=5, dtype=torch.float32)
    y = gsb.composed_spmm(parts, values, x)
    assert serial_gpu == ["composed_spmm"]
    close(y.detach(), dense @ x.detach().double(), torch.float32)
    close(gsb.composed_linear(parts, values, x.T.contiguous()).detach(), (dense @ x.double()).T.detach(), torch.float32)
    close(gsb.composed_sddmm(parts, u, x).detach(), parts.values_of(u.double() @ x.detach().double().T), torch.float32)
    y.backward(g)
    close(x.grad, dense.T @ g.double(), torch.float32)
    close(values.grad, parts.values_of(g.double() @ x.detach().double().T), torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_code_for_a_gpu(dtype, recorded_gpu, tmp_path):
    """TVM makes it for sm_80 and sm_90, nvcc takes it, and nothing is spilled, forward and backward."""
    found, kind = Kernels(), getattr(torch, dtype)
    for formats in FORMATS:
        dense = pruned(70, 99)
        parts = decompose(dense, formats, fill=0.2)
        values, x = parts.values_of(dense).to(kind).requires_grad_(), randn(99, 33, dtype=kind).requires_grad_()
        recorded_gpu.clear()
        gsb.composed_spmm(parts, values, x).sum().backward()
        found.add(" + ".join(formats), recorded_gpu)
    found.check(dtype, "sm_80", tmp_path)


def test_other_matrices_than_the_format_is_for():
    """A matrix that it does not suit is in the next one, and one without rows or columns in none."""
    dense = matrix(6, 5)
    parts = decompose(dense, ["columns(8)", "csr"], fill=1)
    assert [str(piece.spec) for piece in parts.pieces] == ["csr"]
    for m, n in ((0, 4), (4, 0), (3, 5)):
        for formats in FORMATS:
            parts = decompose(torch.zeros(m, n), formats)
            assert torch.equal(gsb.composed_spmm(parts, torch.zeros(0), torch.ones(n, 2)), torch.zeros(m, 2))


def listed(height):
    """Blocks of whole rows, of which those that have any are listed."""
    stored, nnz = Size("stored"), Size("nnz")
    IO, II = dense_fixed("IO", stored), dense_fixed("II", height)
    JO = sparse_variable("JO", IO, (Size("n"), nnz), ("indptr", "indices"))
    Rows = Buffer("Rows", (IO,), "int32")
    axes, after = (IO, JO, II), ("IO", "JO", "II")
    where = {"I": ("IO", "II"), "J": ("JO",)}
    back = lambda io, jo, ii: (Rows[io] * height + ii, jo)
    return FormatRewriteRule(
        "listed", (stored, nnz), axes, ("A",), ("I", "J"), after, where, None, back, (Rows,), masked=True
    )


def infer_listed(matrix, height):
    found = infer_columns(matrix, height)
    lengths = found.arrays["indptr"].diff()
    (rows,) = lengths.nonzero(as_tuple=True)
    own = {"stored": len(rows), "nnz": found.arrays["nnz"], "indices": found.arrays["indices"], "Rows": rows}
    return Indices(own | {"indptr": ends(lengths[rows])}, found.slots, found.taken)


def test_rows_of_blocks_that_are_listed():
    """They are shared out to tasks, and where they are first a pass over no non-zeros begins all rows."""
    gsb.formats.register("listed", listed, infer_listed)
    try:
        dense = pruned(29, 23)
        dense[8:16] = 0
        for formats in (["listed(4)"], ["csr", "listed(2)"], ["columns(8)", "listed(4)"]):
            parts = decompose(dense, formats, fill=0.9)
            values, x = parts.values_of(dense).requires_grad_(), randn(23, 6)
            y = gsb.composed_spmm(parts, values, x)
            close(y.detach(), dense @ x, torch.float64)
            y.sum().backward()
            close(values.grad, parts.values_of(torch.ones(29, 6, dtype=torch.float64) @ x.T), torch.float64)
            close(gsb.composed_linear(parts, values, x.T).detach(), (dense @ x).T, torch.float64)

        def twice(matrix, height):
            found = infer_listed(matrix, height)
            return Indices(found.arrays | {"Rows": found.arrays["Rows"] // 2}, found.slots, found.taken)

        gsb.formats.register("listed", listed, twice, replace=True)
        with pytest.raises(ValueError, match=r"rows in Rows must ascend, each once, got \[0, 0, 2, 2"):
            decompose(dense, "listed(4)")
    finally:
        gsb.formats.unregister("listed")
