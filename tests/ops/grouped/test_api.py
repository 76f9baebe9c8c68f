"""``gsb.segment_mm`` and ``gsb.gather_mm`` against torch's own gather and batched product in float64."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from tests.covering import covering
from tests.ops.message_oracle import DTYPES, LAYOUTS, assert_close_to, case_name, values

LENGTHS = {
    "mixed": [5, 0, 3, 17, 1, 0],
    "ones": [1] * 9,
    "long": [0, 700, 3, 1300],
    "one": [37],
    "pairs": [2, 3, 2, 2, 3],
}
FEATURES = [(1, 1), (3, 4), (7, 70), (64, 16), (20, 130)]
CALLS = ["segment", "gather", "gather_rows", "in_order"]
CASES = covering(
    {
        "call": CALLS,
        "lengths": list(LENGTHS),
        "features": FEATURES,
        "dtype": DTYPES,
        "index": [32, 64],
        "a_layout": list(LAYOUTS),
        "b_layout": list(LAYOUTS),
    },
    as_one=True,
)


def shuffled(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def product(call: str, lengths: list[int], index_dtype=torch.int64):
    """(rows of a, function of our operator, function of plain torch) of (a, b)."""
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    rows = len(segment)
    if call == "segment":
        own = torch.tensor(lengths, dtype=index_dtype)
        return rows, lambda a, b: gsb.segment_mm(a, b, own), lambda a, b: torch.einsum("ni,nio->no", a, b[segment])
    index = segment if call == "in_order" else segment[shuffled(rows)]
    if call == "gather_rows":
        at = torch.randint(0, rows // 2 + 1, (rows,), generator=torch.Generator().manual_seed(3))
        ours = lambda a, b: gsb.gather_mm(a, b, index.to(index_dtype), at.to(index_dtype))
        return rows // 2 + 1, ours, lambda a, b: torch.einsum("ni,nio->no", a[at], b[index])
    made = gsb.Segments.from_index(index.to(index_dtype), len(lengths))
    return rows, lambda a, b: gsb.gather_mm(a, b, made), lambda a, b: torch.einsum("ni,nio->no", a, b[index])


@pytest.mark.short(8)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, set_index_bits, poisoned_memory):
    call, lengths, (in_features, out_features), dtype, bits, a_layout, b_layout = case
    set_index_bits(bits)
    rows, ours, plain = product(call, LENGTHS[lengths], torch.int32 if bits == 32 else torch.int64)
    exact = [
        LAYOUTS[a_layout](values(1, rows, in_features)),
        LAYOUTS[b_layout](values(2, len(LENGTHS[lengths]), in_features, out_features)),
    ]
    given = [LAYOUTS[layout](x.to(dtype)).requires_grad_() for x, layout in zip(exact, (a_layout, b_layout))]
    actual = ours(*given)
    inputs = [x.clone().requires_grad_() for x in exact]
    sizes = [x.abs().requires_grad_() for x in exact]
    expected, magnitude = plain(*inputs), plain(*sizes)
    assert actual.dtype == dtype and actual.is_contiguous()
    assert_close_to(actual, expected, magnitude)
    cotangent = values(3, *expected.shape)
    for found, right, bound in zip(
        torch.autograd.grad(actual, given, cotangent.to(dtype)),
        torch.autograd.grad(expected, inputs, cotangent),
        torch.autograd.grad(magnitude, sizes, cotangent.abs()),
    ):
        assert found.dtype == dtype
        # rows that an index repeats are summed from stored products
        assert_close_to(found, right, bound, roundings=int(call == "gather_rows"))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "lengths, in_features, out_features", [([], 3, 2), ([0, 0], 3, 2), ([3, 2], 0, 2), ([3, 2], 2, 0)]
)
def test_sizes_of_zero(call, lengths, in_features, out_features, poisoned_memory):
    rows, ours, _ = product(call, lengths)
    if call == "gather_rows" and not lengths:
        return
    a = torch.ones(rows, in_features, requires_grad=True)
    b = torch.ones(len(lengths), in_features, out_features, requires_grad=True)
    out = ours(a, b)
    assert torch.equal(out, torch.zeros(sum(lengths), out_features))
    for gradient, x in zip(torch.autograd.grad(out, [a, b], torch.ones_like(out)), (a, b)):
        assert torch.equal(gradient, torch.zeros_like(x))


@pytest.mark.short(2)
@pytest.mark.parametrize("call", CALLS)
def test_gradcheck(call):
    lengths = LENGTHS["mixed"]
    rows, ours, _ = product(call, lengths)
    a, b = values(1, rows, 3).requires_grad_(), values(2, len(lengths), 3, 2).requires_grad_()
    assert gradcheck(ours, (a, b))
    assert gradgradcheck(ours, (a, b), fast_mode=True)


@pytest.mark.short(1)
@pytest.mark.parametrize("call", ["segment", "gather"])
@pytest.mark.parametrize("lengths", [[3000], [1, 2900, 0, 40, 700], [30] * 60])
def test_the_same_bits_for_any_number_of_threads(call, lengths):
    """Also values: no row is left out where rows and matrices are shared out."""
    rows, ours, plain = product(call, lengths)
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(rows, 13, generator=generator), torch.randn(len(lengths), 13, 24, generator=generator)
    cotangent = torch.randn(rows, 24, generator=generator)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            inputs = [x.clone().requires_grad_() for x in (a, b)]
            out = ours(*inputs)
            found.append([out, *torch.autograd.grad(out, inputs, cotangent)])
    finally:
        torch.set_num_threads(threads)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))
    inputs = [x.double().requires_grad_() for x in (a, b)]
    expected = plain(*inputs)
    torch.testing.assert_close(
        [x.double() for x in found[0]],
        [expected, *torch.autograd.grad(expected, inputs, cotangent.double())],
        rtol=1e-5,
        atol=1e-4,
    )


@pytest.mark.parametrize("call", ["segment", "gather"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row_and_matrix(call, bad):
    lengths = LENGTHS["mixed"]
    rows, ours, plain = product(call, lengths)
    a, b = values(1, rows, 6), values(2, len(lengths), 6, 19)
    clean = plain(a, b)
    a[4, 2] = bad
    inputs = [x.float().requires_grad_() for x in (a, b)]
    out = ours(*inputs)
    keep = torch.arange(rows) != 4
    assert not out[4].isfinite().all() and torch.equal(out[keep].double(), clean[keep])
    grad_b = torch.autograd.grad(out, inputs[1], torch.ones_like(out))[0]
    dirty = [s for s in range(len(lengths)) if not grad_b[s].isfinite().all()]
    assert len(dirty) == 1 and not grad_b[dirty[0], 2].isfinite().any()
    assert grad_b[dirty[0], torch.arange(6) != 2].isfinite().all()


def test_segments_are_made_once_for_many_products():
    index = torch.tensor([2, 0, 2, 1, 0])
    segments = gsb.Segments.from_index(index, 4)
    assert segments.num_rows == 5 and segments.num_segments == 4 and "5 rows" in repr(segments)
    a, b = values(1, 5, 3), values(2, 4, 3, 2)
    expected = torch.einsum("ni,nio->no", a, b[index])
    assert torch.equal(gsb.gather_mm(a, b, segments), expected)
    assert torch.equal(gsb.segment_mm(a, b, segments), expected)
    assert len(segments.facts) == 1


def test_gradients_that_nobody_wants_are_not_computed(calls_to):
    from gnn_sparse_backend.ops.grouped import executables

    computed = calls_to(executables, "run_grouped_sum")
    a, b = values(1, 5, 3).requires_grad_(), values(2, 2, 3, 2)
    assert torch.autograd.grad(gsb.segment_mm(a, b, torch.tensor([2, 3])).sum(), a)[0].shape == a.shape
    assert not computed


@pytest.mark.parametrize("call", CALLS)
def test_compiled(call):
    lengths = LENGTHS["mixed"]
    rows, ours, _ = product(call, lengths)
    a, b = values(1, rows, 3).requires_grad_(), values(2, len(lengths), 3, 2).requires_grad_()
    expected = ours(a, b)
    cotangent = values(3, *expected.shape)
    actual = torch.compile(ours, fullgraph=True, backend="aot_eager")(a, b)
    assert torch.equal(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, [a, b], cotangent), torch.autograd.grad(expected, [a, b], cotangent)
    )


@pytest.mark.short(1)
@pytest.mark.parametrize("ordered", [False, True])
def test_operators_of_torch_library(ordered):
    offsets, order = torch.tensor([0, 2, 2, 5]), None if ordered else torch.tensor([3, 1, 4, 0, 2])
    a, b = values(1, 5, 3).requires_grad_(), values(2, 3, 3, 2).requires_grad_()
    g = values(3, 5, 2).requires_grad_()
    for operator, inputs in ((torch.ops.gsb.grouped_mm, (a, b)), (torch.ops.gsb.grouped_sum, (a, g))):
        torch.library.opcheck(operator.default, (*inputs, offsets, order))
        function = lambda x, y, operator=operator: operator(x, y, offsets, order)
        assert gradcheck(function, inputs) and gradgradcheck(function, inputs, fast_mode=True)
    torch.library.opcheck(torch.ops.gsb.order_by_segment.default, (torch.tensor([2, 0, 2]), 3))


@pytest.mark.cpu_only("a GPU checks values itself, and its run ends")
def test_operators_of_torch_library_refuse_in_words():
    offsets, order = torch.tensor([0, 2, 2, 5]), torch.tensor([3, 1, 4, 0, 2])
    a, b = values(1, 5, 3), values(2, 3, 3, 2)
    with pytest.raises(ValueError, match="offsets must end with the number of rows 5, got 4"):
        torch.ops.gsb.grouped_mm(a, b, torch.tensor([0, 2, 2, 4]), order)
    with pytest.raises(ValueError, match="order must name every row once"):
        torch.ops.gsb.grouped_mm(a, b, offsets, torch.tensor([0, 0, 1, 2, 3]))


def test_meta_tensors_give_shapes():
    out = gsb.segment_mm(torch.empty(5, 3, device="meta"), torch.empty(2, 3, 4, device="meta"), torch.tensor([2, 3]))
    assert out.is_meta and out.shape == (5, 4)


def test_autocast_as_a_matrix_product():
    a, b = values(1, 5, 3).float(), values(2, 2, 3, 4).float()
    lengths = torch.tensor([2, 3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, double = gsb.segment_mm(a, b, lengths), gsb.segment_mm(a.double(), b.double(), lengths)
    assert out.dtype == torch.bfloat16 and double.dtype == torch.float64
    assert torch.equal(out, gsb.segment_mm(a.bfloat16(), b.bfloat16(), lengths))


A, B, LEN, IDX = torch.zeros(5, 3), torch.zeros(2, 3, 4), torch.tensor([2, 3]), torch.tensor([0, 1, 0, 1, 1])
REFUSED = {
    "sum": (
        "segment_mm",
        (A, B, torch.tensor([2, 2])),
        ValueError,
        "lengths must sum to the number of rows 5, .* to 4",
    ),
    "negative": ("segment_mm", (A, B, torch.tensor([6, -1])), ValueError, r"not be negative, but lengths\[1\] = -1"),
    "segments": (
        "segment_mm",
        (A, B, torch.tensor([2, 2, 1])),
        ValueError,
        "b has 2 matrices, but there are 3 segments",
    ),
    "floats": ("segment_mm", (A, B, LEN.float()), TypeError, "lengths must hold integers, got torch.float32"),
    "list": ("segment_mm", (A, B, [2, 3]), TypeError, "lengths must be a torch tensor or NumPy array"),
    "2-d b": ("segment_mm", (A, B[0], LEN), ValueError, r"b must have shape \(relations, F_in, F_out\), got \(3, 4\)"),
    "3-d a": ("segment_mm", (A[None], B, LEN), ValueError, r"a must have shape \(N, F_in\), got \(1, 5, 3\)"),
    "features": ("segment_mm", (A[:, :2], B, LEN), ValueError, "do not fit: 2 against 3"),
    "types": ("segment_mm", (A, B.double(), LEN), TypeError, "of one type, got a of torch.float32, b of torch.float64"),
    "integers": ("segment_mm", (A.long(), B.long(), LEN), TypeError, "a must be float32"),
    "range": ("gather_mm", (A, B, IDX + 1), ValueError, r"index\[1\] = 2 is out of range: there are 2 segments"),
    "rows": ("gather_mm", (A, B, IDX[:4]), ValueError, "4 rows belong to segments, but the operand has 5"),
    "idx_a": ("gather_mm", (A, B, IDX, IDX + 5), ValueError, r"idx_a\[0\] = 5 is out of range: there are 5 rows of a"),
    "idx_a rows": ("gather_mm", (A, B, IDX, IDX[:3]), ValueError, "5 rows belong to segments, but the operand has 3"),
    "made for other": (
        "gather_mm",
        (A, B, gsb.Segments.from_index(IDX, 3)),
        ValueError,
        "b has 2 matrices, .* 3 segments",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case):
    operator, arguments, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        getattr(gsb, operator)(*arguments)


def test_segments_refuse_bad_offsets():
    for offsets, words in (
        ([1, 2], r"offsets\[0\] must be 0, got 1"),
        ([0, 3, 2, 5], r"offsets\[1\] = 3 but offsets\[2\] = 2"),
        ([0, 4], "must end with the number of rows 5, got 4"),
        ([], "got none"),
    ):
        with pytest.raises(ValueError, match=words):
            gsb.Segments.from_offsets(torch.tensor(offsets, dtype=torch.int64), 5)
