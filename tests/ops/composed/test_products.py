"""Products of matrices in several formats: values, gradients of both orders, types, padding and its infinities."""

import copy
import dataclasses
import functools
import pickle

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.formats import decompose
from gnn_sparse_backend.formats.composed.decompose import transposed
from gnn_sparse_backend.formats.composed.spec import parse_formats
from gnn_sparse_backend.ops.composed.executables_linear import row_linear
from gnn_sparse_backend.ops.composed.executables_sddmm import run_sddmm
from gnn_sparse_backend.ops.composed.schedules_cpu import takes_tiles
from gnn_sparse_backend.structures.derived import MOST_FACTS

FORMATS = (
    ["csr"],
    ["bsr(4)"],
    ["bsr(8)", "csr"],
    ["bsr(16, 8)", "bsr(2)", "ell(2)", "csr"],
    ["dbsr(8)"],
    ["dbsr(4, 3)", "dia", "csr"],
    ["dbsr(4)", "dbsr(2)"],
    ["sr_bcrs(4, 2)", "csr"],
    ["sr_bcrs(3, 2)"],
    ["dia"],
    ["ell(5)", "dia"],
    ["hyb(1, 3)"],
    ["hyb(3, 1)"],
    ["coo"],
    ["dbsr(4)", "hyb(2, 2)"],
)
every_format = pytest.mark.parametrize("formats", FORMATS, ids=" + ".join)
TOLERANCE = {
    torch.float64: {"atol": 1e-10, "rtol": 1e-10},
    torch.float32: {"atol": 1e-4, "rtol": 1e-4},
    torch.float16: {"atol": 2e-2, "rtol": 2e-2},
    torch.bfloat16: {"atol": 2e-1, "rtol": 2e-2},
}


def matrix(m, n, density=0.3, seed=0):
    """A full corner, scattered non-zeros, and rows without any."""
    rng = torch.Generator().manual_seed(seed)
    found = torch.randn(m, n, dtype=torch.float64, generator=rng) * (torch.rand(m, n, generator=rng) < density)
    found[: m // 2, : n // 2] = torch.randn(m // 2, n // 2, dtype=torch.float64, generator=rng)
    found[m - m // 4 :] = 0
    return found


def randn(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(got, want, dtype):
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want, **TOLERANCE[dtype], equal_nan=True)


@every_format
@pytest.mark.parametrize(
    "dtype, m, n, width",
    [
        (torch.float32, 29, 23, 70),
        (torch.float32, 40, 17, 1),
        (torch.float64, 7, 9, 5),
        (torch.bfloat16, 32, 16, 20),
        (torch.float16, 32, 24, 33),
    ],
)
def test_values(formats, dtype, m, n, width):
    parts = decompose(matrix(m, n), formats)
    values = parts.values_of(matrix(m, n)).to(dtype)
    dense = parts.to_dense(values.double())
    x, tokens, u = randn(n, width, dtype=dtype), randn(3, width, n, dtype=dtype), randn(m, width, dtype=dtype)
    close(gsb.composed_spmm(parts, values, x), dense @ x.double(), dtype)
    close(gsb.composed_linear(parts, values, tokens), tokens.double() @ dense.T, dtype)
    close(gsb.composed_sddmm(parts, u, x), parts.values_of(u.double() @ x.double().T), dtype)


@every_format
def test_gradients_of_both_orders(formats):
    parts = decompose(matrix(9, 7, 0.5), formats)
    values = parts.values_of(matrix(9, 7, 0.5)).requires_grad_()
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
    dense = matrix(29, 23)
    parts = decompose(dense, formats)
    values = parts.values_of(dense)
    x = randn(23, 6)
    x[11] = special
    want = torch.stack([row[row != 0] @ x[row != 0] for row in dense])
    close(gsb.composed_spmm(parts, values, x), want, torch.float64)
    close(gsb.composed_linear(parts, values, x.T), want.T, torch.float64)


@every_format
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("m, n, tokens", [(70, 99, 133), (16, 17, 47), (48, 32, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_in_slices(formats, threads, m, n, tokens, dtype):
    """Of more tokens than a slice for each thread; an infinite one meets its non-zeros alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        dense = matrix(m, n)
        parts = decompose(dense, formats)
        values, x = parts.values_of(dense).to(dtype).requires_grad_(), randn(tokens, n, dtype=dtype).requires_grad_()
        y = gsb.composed_linear(parts, values, x)
        filled = parts.to_dense(values.detach().double()).requires_grad_()
        given = x.detach().double().requires_grad_()
        want = given @ filled.T
        close(y, want.detach(), dtype)
        cotangent = randn(tokens, m, seed=5, dtype=dtype)
        to_values, to_x = torch.autograd.grad(y, (values, x), cotangent)
        of_filled, of_given = torch.autograd.grad(want, (filled, given), cotangent.double())
        close(to_x, of_given, dtype)
        error = (to_values.double() - parts.values_of(of_filled)).abs().max()
        assert error < (1e-4 if dtype == torch.float32 else 1e-2) * of_filled.abs().max()
        with torch.no_grad():
            x[tokens - 3, 11] = float("inf")
            found = gsb.composed_linear(parts, values, x).isfinite()
        expected = torch.ones(tokens, m, dtype=torch.bool)
        expected[tokens - 3] = dense[:, 11] == 0
        assert torch.equal(found, expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.short(4)
@pytest.mark.parametrize("tokens", [5, 32, 33, 100, 300])
@pytest.mark.parametrize(
    "formats", [["csr"], ["bsr(8)", "csr"], ["bsr(16)"], ["bsr(64)"], ["hyb(2, 2)"], ["dia", "coo"]]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_same_bits_for_any_number_of_threads(formats, tokens, dtype):
    """Of as many tokens as each thread has slices of, and of fewer; forward and backward."""
    dense = matrix(400, 300)
    parts = decompose(dense, formats)
    values, x = parts.values_of(dense).to(dtype).requires_grad_(), randn(tokens, 300, dtype=dtype).requires_grad_()
    bias, g = randn(400, seed=2, dtype=dtype), randn(tokens, 400, seed=3, dtype=dtype)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        y = gsb.composed_linear(parts, values, x, bias)
        found.append((y, *torch.autograd.grad(y, (values, x), g)))
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.parametrize("formats", [["bsr(32)"], ["bsr(16)", "csr"], ["csr"], ["dbsr(4)"], ["hyb(1, 2)"]])
@pytest.mark.parametrize("tokens", [1, 133])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_of_rows(formats, tokens, dtype):
    """Begins every row, those without a non-zero too; its gradient is the sum over tokens."""
    dense = matrix(70, 99)
    dense[32:64] = 0
    parts = decompose(dense, formats)
    values, x, bias = parts.values_of(dense).to(dtype), randn(tokens, 99, dtype=dtype), randn(70, dtype=dtype)
    bias.requires_grad_()
    y = gsb.composed_linear(parts, values, x, bias)
    close(y, torch.nn.functional.linear(x.double(), parts.to_dense(values.double()), bias.detach().double()), dtype)
    cotangent = randn(tokens, 70, seed=5, dtype=dtype)
    (found,) = torch.autograd.grad(y, bias, cotangent)
    close(found, cotangent.double().sum(0), dtype)
    with pytest.raises(ValueError, match=r"bias must be \(70,\), got \(69,\)"):
        gsb.composed_linear(parts, values, x, bias[1:])


def test_what_runs_in_slices():
    parts = decompose(matrix(40, 30), ["csr"])
    values = parts.values_of(matrix(40, 30)).float()
    for tokens, name in ((200, "composed_sliced"), (3, "aggregate")):
        gsb.composed_linear(parts, values, torch.ones(tokens, 30))
        assert name in str(gsb.last_run())
    short = "composed_linear" if host_target().vector_bytes >= 64 else "composed_sliced"
    for side, tokens, name in ((16, 200, short), (16, 3, "composed_linear"), (64, 200, "composed_linear")):
        parts = decompose(torch.ones(64, 64), [f"bsr({side})"])
        gsb.composed_linear(parts, torch.ones(parts.nnz), torch.ones(tokens, 64))
        assert name in str(gsb.last_run())
    parts = decompose(matrix(40, 30), ["csr"])
    for tokens, name in ((1000, "composed_sliced_sddmm"), (7, "composed_sddmm")):
        found = run_sddmm(parts, torch.ones(tokens, 40), torch.ones(tokens, 30), True)
        assert name in str(gsb.last_run()) and torch.equal(found, torch.full_like(found, tokens))


@every_format
def test_batches(formats):
    dense = matrix(29, 23)
    parts = decompose(dense, formats)
    one = parts.values_of(dense)
    several = torch.stack([one, 2 * one, -one]).requires_grad_()
    x, u = randn(3, 23, 5).requires_grad_(), randn(3, 29, 5)
    y = gsb.composed_spmm(parts, several, x)
    want = parts.to_dense(several) @ x
    close(y, want, torch.float64)
    cotangent = randn(3, 29, 5, seed=4)
    for got, expected in zip(
        torch.autograd.grad(y, (several, x), cotangent), torch.autograd.grad(want, (several, x), cotangent)
    ):
        close(got, expected, torch.float64)
    close(gsb.composed_spmm(parts, one, x), dense @ x, torch.float64)
    close(gsb.composed_spmm(parts, several, x[0]), parts.to_dense(several) @ x[0], torch.float64)
    close(gsb.composed_sddmm(parts, u, x), parts.values_of(u @ x.transpose(1, 2)), torch.float64)


def test_packed_values_get_no_gradient_at_padding():
    dense = matrix(29, 23)
    parts = decompose(dense, ["bsr(4)", "dia"])
    packed = parts.pack(parts.values_of(dense)).requires_grad_()
    gsb.composed_linear(parts, packed, randn(6, 23), packed=True).square().sum().backward()
    assert parts.padding and not packed.grad[~parts.mask].any() and packed.grad[parts.mask].any()


def test_graphs_keep_their_decompositions_and_the_order_of_their_edges():
    row, column = torch.tensor([[3, 0, 1, 0, 3, 3], [1, 2, 0, 2, 0, 1]])
    graph = gsb.Graph.from_coo(row, column, (4, 3))
    weight, x = randn(6), randn(3, 4)
    want = gsb.spmm(graph, x, weight)
    for formats in FORMATS:
        parts = decompose(graph, formats)
        assert decompose(graph, formats) is parts
        close(gsb.composed_spmm(parts, weight, x), want, torch.float64)
    assert "Decomposition(" in str(gsb.memory(graph))
    graph.release()
    assert decompose(graph, FORMATS[-1]) is not parts


def test_no_rows_columns_features_or_non_zeros():
    for m, n, width in ((0, 3, 2), (3, 0, 2), (3, 4, 0), (3, 4, 2)):
        for formats in (["bsr(2)", "csr"], ["dbsr(2)"], ["dia"], ["hyb(2, 2)"], ["coo"]):
            parts = decompose(torch.zeros(m, n), formats)
            values = torch.zeros(0)
            assert torch.equal(gsb.composed_spmm(parts, values, torch.ones(n, width)), torch.zeros(m, width))
            assert torch.equal(gsb.composed_linear(parts, values, torch.ones(width, n)), torch.zeros(width, m))
            assert gsb.composed_sddmm(parts, torch.ones(m, width), torch.ones(n, width)).shape == (0,)


def test_errors_quote_what_does_not_fit():
    parts = decompose(matrix(6, 5), ["bsr(2)", "csr"])
    values, x = torch.ones(parts.nnz), torch.ones(5, 3)
    for wrong, words in (
        (lambda: gsb.composed_spmm(matrix(6, 5), values, x), "expected a Decomposition .*, got Tensor"),
        (lambda: gsb.composed_spmm(parts, values, x.T), r"x must be \(5, features\) .*, got \(3, 5\)"),
        (lambda: gsb.composed_spmm(parts, values[:-1], x), rf"must end in nnz = {parts.nnz}, got \({parts.nnz - 1},\)"),
        (lambda: gsb.composed_spmm(parts, values.int(), x), "values"),
        (lambda: gsb.composed_linear(parts, values, x), r"x must be \(\.\.\., 5\), got \(5, 3\)"),
        (lambda: gsb.composed_linear(parts, values[None], x.T), r"values must be \(nnz,\)"),
        (lambda: gsb.composed_sddmm(parts, x, x), r"u must be \(\.\.\., 6, features\), got \(5, 3\)"),
        (lambda: gsb.composed_sddmm(parts, torch.ones(6, 2), x), "must have the same features"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            wrong()


@pytest.mark.skipif(not host_target().has_bf16_tiles, reason="no tiles of bfloat16 on this processor")
@pytest.mark.parametrize("block", ["bsr(16)", "bsr(32)", "dbsr(32)", "bsr(64, 16)", "bsr(16, 48)", "bsr(128)"])
@pytest.mark.parametrize("tokens, m, n", [(32, 128, 192), (45, 250, 130), (100, 384, 256)])
def test_blocks_on_tile_registers(block, tokens, m, n):
    """Tokens and sides that no tile divides, rows of blocks without any, a bias, and gradients."""
    dense = randn(m, n, seed=3)
    dense[32:64], dense[:, 96:112] = 0, 0
    parts = decompose(dense, [block], fill=0.01)
    values = parts.values_of(dense).bfloat16().requires_grad_()
    x, bias, g = (randn(*shape, seed=4, dtype=torch.bfloat16) for shape in ((tokens, n), (m,), (tokens, m)))
    x.requires_grad_()
    y = gsb.composed_linear(parts, values, x, bias)
    assert "AMX tiles" in str(gsb.last_run())
    matrix_of = parts.to_dense(values.double()).detach()
    close(y, x.double() @ matrix_of.T + bias.double(), torch.bfloat16)
    y.backward(g)
    close(x.grad, g.double() @ matrix_of, torch.bfloat16)
    close(values.grad, parts.values_of(g.double().T @ x.double()), torch.bfloat16)
    packed = run_sddmm(parts, g, x.detach(), True)
    assert "composed_tiled_sddmm" in str(gsb.last_run()) and not packed[~parts.mask].any()


def test_what_goes_to_tiles():
    registers = "amx-bf16", "amx-tile", "avx512bf16"
    with_tiles = dataclasses.replace(host_target(), cpu="sapphirerapids", features=registers)
    without = dataclasses.replace(with_tiles, features=("avx512bf16",))
    in_pairs = dataclasses.replace(without, cpu="znver4")
    for words, tokens, target, taken in (
        (["bsr(32)"], 32, with_tiles, True),
        (["bsr(32)"], 31, with_tiles, False),
        (["bsr(32)"], 32, without, False),
        (["bsr(32)"], 32, in_pairs, True),
        (["bsr(8)"], 32, with_tiles, False),
        (["bsr(32)", "csr"], 32, with_tiles, False),
    ):
        assert takes_tiles(parse_formats(words), tokens, target) == taken


def test_traced_programs():
    dense = matrix(9, 7, 0.5)
    parts = decompose(dense, ["bsr(4)", "csr"])
    packed = parts.pack(parts.values_of(dense)).requires_grad_()
    x = randn(5, 7).requires_grad_()

    def layer(packed, x):
        return gsb.composed_linear(parts, packed, x, packed=True).sin()

    want = layer(packed, x)
    got = torch.compile(layer, fullgraph=True, backend="aot_eager")(packed, x)
    close(got, want, torch.float64)
    for one, other in zip(*(torch.autograd.grad(y.square().sum(), (packed, x)) for y in (got, want))):
        close(one, other, torch.float64)
    *arguments, transposed = parts.made_of
    torch.library.opcheck(torch.ops.gsb.composed_spmm.default, (*arguments, packed, x, None, True, transposed))
    torch.library.opcheck(torch.ops.gsb.composed_spmm.default, (*arguments, packed, x, randn(9), True, transposed))
    torch.library.opcheck(torch.ops.gsb.composed_sddmm.default, (*arguments, randn(5, 9), x, True, transposed))
    torch.library.opcheck(torch.ops.gsb.composed_repack.default, (*arguments, packed, transposed))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda parts: pickle.loads(pickle.dumps(parts))])
@pytest.mark.parametrize("of_transpose", [False, True])
def test_copies_are_traced_with_their_gradients(copied, of_transpose):
    """A copy makes its transpose anew, which a traced program has to name as well."""
    dense = matrix(9, 7, 0.5)
    original = decompose(dense, ["bsr(4)", "csr"])
    dense = dense.T if of_transpose else dense
    parts = copied(transposed(original) if of_transpose else original)
    values, x = original.values_of(matrix(9, 7, 0.5)).requires_grad_(), randn(dense.shape[1], 3).requires_grad_()
    assert transposed(parts).made_of[:-1] == parts.made_of[:-1]
    assert transposed(parts).made_of[-1] != parts.made_of[-1]

    def product(values, x):
        return gsb.composed_spmm(parts, values, x)

    y = torch.compile(product, fullgraph=True, backend="aot_eager")(values, x)
    close(y.detach(), dense @ x.detach(), torch.float64)
    (to_x,) = torch.autograd.grad(y.square().sum(), x)
    close(to_x, (2 * dense.T @ (dense @ x)).detach(), torch.float64)
    batch = torch.func.vmap(product, in_dims=(None, 0))(values, torch.stack([x, x]))
    close(batch[1].detach(), y.detach(), torch.float64)


def test_more_numbers_of_tokens_than_a_structure_remembers():
    """What is made for each number of tokens goes at last, and with it what gradients are made of."""
    dense = matrix(20, 18)
    parts = decompose(dense, ["bsr(4)", "csr"])
    values = parts.values_of(dense).float().requires_grad_()
    filled = parts.to_dense(values.detach().double())
    for tokens in range(1, MOST_FACTS + 40, 3):
        for own in (parts, transposed(parts)):
            row_linear(own, tokens, torch.float32, False, 1, False, 0)
            row_linear(own, tokens + 1, torch.float32, False, 1, False, 0)
    assert len(parts.facts) <= MOST_FACTS
    parts.facts.pop("repacking", None)
    transposed(parts).facts.clear()
    x, g = randn(5, 18, dtype=torch.float32).requires_grad_(), randn(5, 20, seed=2, dtype=torch.float32)
    gsb.composed_linear(parts, values, x).backward(g)
    close(x.grad, g.double() @ filled, torch.float32)
    close(values.grad, parts.values_of(g.double().T @ x.detach().double()), torch.float32)
