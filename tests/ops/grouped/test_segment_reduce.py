"""``gsb.segment_reduce`` against torch's own scatter in float64, and its kernel against DGL's."""

from types import SimpleNamespace

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.grouped.segment_reduce import run_segment_reduce
from tests.covering import covering
from tests.ops.message_oracle import DTYPES, LAYOUTS, assert_step, case_name, reduced, values

LENGTHS = {"mixed": [5, 0, 3, 17, 1, 0], "ones": [1] * 9, "long": [0, 20_000, 3], "one": [37]}
REDUCTIONS = [
    ("sum", "even"),
    ("mean", "even"),
    ("max", "even"),
    ("max", "first"),
    ("max", "last"),
    ("min", "even"),
    ("min", "first"),
]
FEATURES = [(), (1,), (7,), (70,), (3, 5)]
CALLS = ["lengths", "offsets", "segments", "index"]
CASES = covering(
    {
        "call": CALLS,
        "reduction": REDUCTIONS,
        "features": FEATURES,
        "dtype": DTYPES,
        "index": [32, 64],
        "lengths": list(LENGTHS),
        "layout": list(LAYOUTS),
    },
    as_one=True,
)


def edges_of(lengths: list[int], order=None):
    """Rows as edges, for the oracle."""
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    position = torch.arange(len(segment))
    if order is not None:
        segment = torch.empty_like(segment).scatter_(0, order, segment)
        position = torch.empty_like(position).scatter_(0, order, position)
    return SimpleNamespace(graph=SimpleNamespace(shape=(len(lengths), 1)), row=segment, position=position)


def call(how: str, lengths: list[int], dtype=torch.int64):
    """(function of (x, reduce, ties), edges for the oracle)."""
    own = torch.tensor(lengths, dtype=dtype)
    if how == "lengths":
        return lambda x, *rest: gsb.segment_reduce(x, own, rest[0], ties=rest[1]), edges_of(lengths)
    if how == "offsets":
        offsets = torch.cat([own.new_zeros(1), own.cumsum(0)])
        return lambda x, *rest: gsb.segment_reduce(x, None, rest[0], offsets=offsets, ties=rest[1]), edges_of(lengths)
    if how == "segments":
        made = gsb.Segments.from_lengths(own)
        return lambda x, *rest: gsb.segment_reduce(x, made, rest[0], ties=rest[1]), edges_of(lengths)
    index = edges_of(lengths).row[torch.randperm(sum(lengths), generator=torch.Generator().manual_seed(0))]
    made = gsb.Segments.from_index(index.to(dtype), len(lengths))
    return (
        lambda x, *rest: gsb.segment_reduce(x, made, rest[0], ties=rest[1]),
        edges_of(lengths, torch.sort(index, stable=True).indices),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, set_index_bits, poisoned_memory):
    how, (reduce, ties), features, dtype, bits, lengths, layout = case
    set_index_bits(bits)
    ours, edges = call(how, LENGTHS[lengths], torch.int32 if bits == 32 else torch.int64)
    exact = LAYOUTS[layout](values(1, len(edges.row), *features))
    given = LAYOUTS[layout](exact.to(dtype)).requires_grad_()
    actual = ours(given, reduce, ties)
    inputs, sizes = exact.clone().requires_grad_(), exact.abs().requires_grad_()
    expected, shares = reduced(edges, inputs, reduce, ties, dtype)
    magnitude, _ = reduced(edges, sizes, reduce, ties, dtype, shares)
    roundings = 2 if ties == "even" and reduce in ("max", "min") else 0
    assert_step(actual, [given], expected, [inputs], magnitude, [sizes], roundings)


@pytest.mark.parametrize("reduce, ties", REDUCTIONS)
@pytest.mark.parametrize("lengths", [[], [0, 0], [0, 2]])
def test_sizes_of_zero(reduce, ties, lengths, poisoned_memory):
    x = torch.ones(sum(lengths), 3, requires_grad=True)
    out = gsb.segment_reduce(x, torch.tensor(lengths, dtype=torch.int64), reduce, ties=ties)
    empty = 0.0 if reduce in ("sum", "mean") or ties == "even" else float("-inf" if reduce == "max" else "inf")
    assert out.shape == (len(lengths), 3) and torch.equal(out[:1], torch.full_like(out[:1], empty))
    assert torch.autograd.grad(out, x, torch.ones_like(out))[0].isfinite().all()
    assert gsb.segment_reduce(torch.ones(2, 0), torch.tensor([0, 2]), reduce, ties=ties).shape == (2, 0)


@pytest.mark.parametrize(
    "how, reduce, ties", covering({"how": CALLS, "reduce": ["sum", "mean", "max"], "ties": ["even", "first"]})
)
def test_gradcheck(how, reduce, ties):
    ours, _edges = call(how, [4, 1, 6])
    x = (torch.randperm(22, generator=torch.Generator().manual_seed(0)).double() / 10).view(11, 2).requires_grad_()
    assert gradcheck(lambda x: ours(x, reduce, ties), x) and gradgradcheck(
        lambda x: ours(x, reduce, ties), x, fast_mode=True
    )


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "op, dtype",
    [
        ("sum", torch.float32),
        ("sum", torch.float64),
        ("max", torch.float32),
        ("max", torch.bfloat16),
        ("min", torch.float64),
        ("min", torch.bfloat16),
    ],
)
def test_results_and_chosen_rows_are_those_of_dgl(op, dtype, index_dtype):
    """With ties, NaN, infinities and empty segments, first, last and in between."""
    sparse = pytest.importorskip("dgl.backend.pytorch.sparse", reason="DGL is not installed")
    x = values(1, 40, 3)
    x[5], x[6, 1], x[7, 2] = float("nan"), float("inf"), float("-inf")
    x[20:23], x[24] = float("-inf"), float("inf")
    x[30:33] = float("nan")
    x = x.to(dtype)
    offsets = torch.tensor([0, 0, 9, 9, 20, 23, 25, 30, 33, 40, 40], dtype=index_dtype)
    expected, chosen = sparse._segment_reduce(op, x, offsets)
    out, mine = run_segment_reduce(op, x, offsets)
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=0, atol=0)
    if op == "sum":
        assert mine is None
    else:
        assert mine.dtype == chosen.dtype and torch.equal(mine, chosen)


def test_large_inputs_share_no_row():
    """Enough work for several threads, with a long segment that one of them takes."""
    threads = torch.get_num_threads()
    lengths = torch.tensor([3] * 2000 + [30_000] + [0, 7] * 500)
    x = torch.randn(int(lengths.sum()), 8, generator=torch.Generator().manual_seed(0))
    expected = torch.segment_reduce(x.double(), "sum", lengths=lengths, axis=0)
    try:
        torch.set_num_threads(4)
        out = gsb.segment_reduce(x, lengths)
        torch.set_num_threads(1)
        assert torch.equal(out, gsb.segment_reduce(x, lengths))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize("reduce, ties", [("mean", "even"), ("max", "first")])
def test_compiled(how, reduce, ties):
    ours, _edges = call(how, [4, 1, 0, 6])
    x = values(1, 11, 2).requires_grad_()
    expected = ours(x, reduce, ties)
    actual = torch.compile(lambda x: ours(x, reduce, ties), fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(actual, expected)
    cotangent = values(2, *expected.shape)
    torch.testing.assert_close(torch.autograd.grad(actual, x, cotangent), torch.autograd.grad(expected, x, cotangent))


X, LEN = torch.zeros(5, 3), torch.tensor([2, 3])
REFUSED = {
    "sum": ((X, LEN + 1), {}, ValueError, "lengths must sum to the number of rows 5, but they sum to 7"),
    "offsets": ((X,), {"offsets": LEN}, ValueError, r"offsets\[0\] must be 0, got 2"),
    "offsets end": (
        (X,),
        {"offsets": torch.tensor([0, 6])},
        ValueError,
        "offsets must end with the number of rows 5, got 6",
    ),
    "both": ((X, LEN), {"offsets": LEN}, ValueError, "give either lengths or offsets"),
    "neither": ((X,), {}, ValueError, "give either lengths or offsets"),
    "reduce": ((X, LEN, "mul"), {}, ValueError, "reduce must be 'sum', 'mean', 'prod', 'max' or 'min', got 'mul'"),
    "ties": ((X, LEN, "max"), {"ties": "none"}, ValueError, "ties must be 'even', 'last' or 'first', got 'none'"),
    "integers": ((X.long(), LEN), {}, TypeError, "x must be float32, .* got torch.int64"),
    "scalar": ((X[0, 0], LEN), {}, ValueError, "got a tensor without dimensions"),
    "segments": ((X, gsb.Segments.from_lengths(LEN + 1)), {}, ValueError, "7 rows belong to segments, but x has 5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case):
    arguments, keywords, error, words = REFUSED[case]
    with pytest.raises(error, match="segment_reduce: .*" + words):
        gsb.segment_reduce(*arguments, **keywords)
