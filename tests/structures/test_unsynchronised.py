"""Segments that are made for one call on a GPU: nothing of their values is read, and nothing is touched that is not
theirs.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats.partitions.outer_tasks import outer_tasks
from gnn_sparse_backend.formats.partitions.row_parts import most_parts, split_rows
from gnn_sparse_backend.ops.core.plans_cuda import plan_unsynchronised
from gnn_sparse_backend.ops.grouped.segment_reduce import _by_operator, run_segment_reduce
from gnn_sparse_backend.planner.cuda.plan import BUCKETS_PAY
from gnn_sparse_backend.planner.cuda.rows import LONG_ROW, PART, TeamPartPlan, TeamPlan
from gnn_sparse_backend.structures import unsynchronised as unread
from gnn_sparse_backend.structures.segment_rows import rows_graph
from tests.ops.operators import quarters
from tests.ops.serial_gpu import cut_rows_short
from tests.ops.waits import Promises, without_waiting

CPU = torch.device("cpu")
# Of some tens of rows each: one segment has most, some have none, the last one among them.
LENGTHS = ([5, 0, 60, 17, 1, 0], [0, 0, 83, 0, 0, 0], [14, 14, 14, 14, 14, 13])
ROWS = 83


def segment_of(lengths) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def shuffled(lengths) -> torch.Tensor:
    return segment_of(lengths)[torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))]


NAMED = torch.arange(ROWS) * 7 % 40
# name: arrays of some lengths, made anew for each call, and the call on them; rows of a; plain PyTorch
REDUCTIONS = (
    {
        f"segment_reduce {reduce} {ties}": (
            lambda n: (torch.tensor(n),),
            lambda x, own, reduce=reduce, ties=ties: gsb.segment_reduce(x, own, reduce, ties=ties),
        )
        for reduce, ties in (("sum", "even"), ("mean", "even"), ("max", "even"), ("min", "first"))
    }
    | {
        "segment_reduce of offsets": (
            lambda n: (torch.tensor([0, *n]).cumsum(0),),
            lambda x, own: gsb.segment_reduce(x, offsets=own),
        ),
    }
    | {  # as under torch.compile
        f"segment_reduce {reduce} {ties} by operators": (
            lambda n: (torch.tensor(n),),
            lambda x, own, reduce=reduce, ties=ties: _by_operator(x, own, None, reduce, ties),
        )
        for reduce, ties in (("sum", None), ("mean", None), ("max", "first"))
    }
)
PRODUCTS = {
    "segment_mm": (lambda n: (torch.tensor(n, dtype=torch.int32),), gsb.segment_mm),
    "gather_mm": (lambda n: (shuffled(n),), gsb.gather_mm),
    "gather_mm of rows": (lambda n: (shuffled(n), NAMED.clone()), gsb.gather_mm),
    "grouped_mm": (lambda n: (torch.tensor([0, *n]).cumsum(0), torch.randperm(ROWS)), torch.ops.gsb.grouped_mm),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_do_not_wait(name, request, monkeypatch):
    """Forward and backward, with long rows in parts. Kernels are there after the first call; lengths and results are
    new each time.
    """
    make, run = REDUCTIONS[name]
    x, cotangent = (
        quarters(ROWS, 3, 2, dtype=torch.float64).requires_grad_(),
        quarters(6, 3, 2, dtype=torch.float64, seed=1),
    )

    def call(own):
        out = run(x, *own)
        return [out.detach(), *torch.autograd.grad(out, x, cotangent)]

    expected = [call(make(lengths)) for lengths in LENGTHS]
    launched = request.getfixturevalue("serial_gpu")
    cut_rows_short(monkeypatch, 40, 16)
    for lengths, exact in zip(LENGTHS, expected):
        own = make(lengths)
        if lengths is LENGTHS[0]:
            call(own)
            # the results of parts are merged, but for the rows that were chosen
            assert launched.count("aggregate") >= (1 if "first" in name else 2)
            own = make(lengths)
        for a, b in zip(without_waiting(partial(call, own), monkeypatch), exact, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


# on Tensor Cores, and not; few rows a task, and all in one
@pytest.mark.parametrize(
    "dtype, widths", [(torch.bfloat16, (17, 9)), (torch.float64, (5, 4))], ids=["tiles", "float64"]
)
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.short(1)
def test_products_do_not_wait(name, dtype, widths, request, monkeypatch):
    """Forward, backward, and backward of that."""
    make, run = PRODUCTS[name]
    a = quarters(40 if name == "gather_mm of rows" else ROWS, widths[0], dtype=dtype).requires_grad_()
    b = quarters(6, *widths, dtype=dtype, seed=1).requires_grad_()
    cotangent = quarters(ROWS, widths[1], dtype=dtype, seed=2).requires_grad_()

    def call(own):
        out = run(a, b, *own)
        grads = torch.autograd.grad(out, (a, b), cotangent, create_graph=True)
        again = torch.autograd.grad(grads, (a, b, cotangent), [torch.ones_like(g) for g in grads])
        return [x.detach() for x in (out, *grads, *again)]

    torch.manual_seed(0)
    arrays = [make(lengths) for lengths in LENGTHS]
    expected = [call(own) for own in arrays]
    launched = request.getfixturevalue("serial_gpu")
    monkeypatch.setattr("gnn_sparse_backend.ops.grouped.outer_sums_cuda.sum_length", lambda *_: 32)
    call(tuple(x.clone() for x in arrays[0]))
    assert ("grouped_tiles" in launched and "grouped_sum_tiles" in launched) == (dtype is torch.bfloat16)
    rounding = 8 * torch.finfo(dtype).eps
    for own, exact in zip(arrays, expected):
        for found, wanted in zip(without_waiting(partial(call, own), monkeypatch), exact, strict=True):
            torch.testing.assert_close(found, wanted, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("ordered", [False, True])
def test_segments_are_looked_at_once(ordered, serial_gpu, monkeypatch):
    x = quarters(ROWS, 3, dtype=torch.float64).requires_grad_()
    index = segment_of(LENGTHS[0]) if ordered else shuffled(LENGTHS[0])
    segments = gsb.Segments.from_index(index, 6)
    assert (segments.order is None) == ordered

    def call():
        out = gsb.segment_reduce(x, segments, "max")
        return [out.detach(), *torch.autograd.grad(out.sum(), x)]

    for a, b in zip(call(), without_waiting(call, monkeypatch), strict=True):
        assert torch.equal(a, b)


def test_what_is_longest_is_a_bound():
    """Of lengths of every kind; parts beyond the last have nothing, and are behind all others."""
    generator = torch.Generator().manual_seed(0)
    for _trial in range(200):
        rows, longest, limit = (int(torch.randint(1, n, (), generator=generator)) for n in (9, 40, 12))
        lengths = torch.randint(0, longest, (rows,), generator=generator) * torch.randint(
            0, 2, (rows,), generator=generator
        )
        total = int(lengths.sum())
        exact, most = split_rows(lengths, limit), most_parts(total, rows, limit)
        found = split_rows(lengths, limit, most=most)
        count = len(exact[0])
        assert count <= most <= total and all(torch.equal(a[:count], b) for a, b in zip(found, exact))
        assert not found[2][count:].any() and found[1][count:].eq(total).all()
        tasks, bounded = (
            outer_tasks(torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]), total, 2, limit, way)
            for way in (False, True)
        )
        assert tasks.tasks <= bounded.tasks and torch.equal(bounded.task_ptr[: tasks.tasks + 1], tasks.task_ptr)
        assert bounded.task_ptr[tasks.tasks :].eq(tasks.task_ptr[-1]).all()
        if total:  # the bound is met
            assert most_parts(total, 1, limit) == -(-total // limit) and most_parts(total, total, limit) == total


BAD_LENGTHS = (
    [5, 0, 60, 17, 1, 1],
    [5, 0, 60, 17, 0, 0],
    [90, -7, 0, 0, 0, 0],
    [2**62] * 6,
    [-(2**62)] * 6,
    [83, 83, 0, 0, 0, 0],
)
BAD_OFFSETS = (
    [1, 5, 5, 65, 82, 83, 83],
    [0, 5, 4, 65, 82, 83, 83],
    [0, 5, 5, 65, 82, 83, 84],
    [0, 0, 0, 0, 0, 0, 0],
    [0, -5, 5, 5, 5, 5, 83],
    [2**62] * 7,
)
BAD_INDICES = ([6], [-1], [2**40], [-(2**62)])


def check_within(segments) -> None:
    """Whatever a kernel looks up of these segments is theirs."""
    rows, count = segments.num_rows, segments.num_segments
    assert (
        segments.unsynchronised
        and segments.offsets.diff().ge(0).all()
        and segments.offsets.ge(0).all()
        and segments.offsets.le(rows).all()
    )
    _groups, panels, group_ptr, start, stop, segment = segments.panels_apart(16)
    assert group_ptr.ge(0).all() and group_ptr.le(panels).all() and segment.ge(0).all() and segment.lt(count).all()
    assert (
        start.ge(0).all()
        and (start <= stop).all()
        and stop.le(rows).all()
        and (start < stop)[: int(group_ptr[-1])].all()
    )
    _units, _, work, _number, work_ptr, begin, block, segment = segments.units_apart(17)
    assert (
        (begin[:, None] + work_ptr.diff()[:, None]).le(rows).all() and work_ptr[-1] <= work and block.lt(17 + 3).all()
    )
    tasks = segments.outer_tasks(16, 32)
    assert (
        tasks.start.ge(0).all()
        and tasks.stop.le(rows).all()
        and tasks.task_ptr.diff().ge(0).all()
        and tasks.task_ptr[-1] <= tasks.chunks
    )
    assert tasks.segment_ptr.ge(0).all() and tasks.segment_ptr.le(tasks.tasks).all()
    indptr, indices = tasks.rows_of_parts(3)
    assert (
        indptr.diff().ge(0).all()
        and indptr[-1] <= indices.numel()
        and indices.ge(0).all()
        and indices.lt(3 * tasks.tasks).all()
    )
    graph = rows_graph(segments)
    assert graph.indptr[-1] <= graph.num_edges == rows
    if segments.order is not None:
        assert segments.order.sort().values.equal(torch.arange(rows, dtype=segments.order.dtype))


@pytest.fixture
def promises(monkeypatch):
    """What is promised to the GPU instead of being read."""
    found = Promises()
    monkeypatch.setattr(torch, "_assert_async", found)
    return found


@pytest.mark.parametrize(
    "kind, values",
    [
        *(("lengths", values) for values in BAD_LENGTHS),
        *(("offsets", values) for values in BAD_OFFSETS),
        *(("index", values) for values in BAD_INDICES),
    ],
    ids=lambda x: x if type(x) is str else str(x[-1]),
)
def test_wrong_values_end_the_run_and_touch_nothing(kind, values, serial_gpu, promises, monkeypatch):
    """On the CPU the same are refused; here what was promised to the GPU does not hold."""
    own = torch.tensor(values)
    if kind == "index":
        own = shuffled(LENGTHS[0]).index_put((torch.tensor(9),), own[0])
    with monkeypatch.context() as patch, pytest.raises(ValueError):
        patch.setattr("gnn_sparse_backend.runtime.devices.on_cpu", lambda device: True)
        make, bound = getattr(gsb.Segments, f"from_{kind}"), 6 if kind == "index" else ROWS
        make(own, bound)
    check_within(getattr(unread, f"segments_of_{kind}")(own, bound, CPU))
    (words,) = promises.broken()
    assert kind in words and str(bound) in words and len(words) < 255  # which is all that a GPU says
    x, w = torch.ones(ROWS, 17, requires_grad=True), torch.ones(6, 17, 9, requires_grad=True)
    calls = {
        "lengths": (lambda: gsb.segment_mm(x, w, own), lambda: gsb.segment_reduce(x, own, "mean")),
        "offsets": (lambda: gsb.segment_reduce(x, offsets=own), lambda: torch.ops.gsb.grouped_mm(x, w, own, None)),
        "index": (lambda: gsb.gather_mm(x, w, own), lambda: gsb.gather_mm(x, w, shuffled(LENGTHS[0]), own * 83)),
    }[kind]
    for call in calls:
        promises.clear()
        out = call()
        torch.autograd.grad(out.sum(), [t for t in (x, w) if t is x or kind == "index"])
        assert promises.broken()


BAD_CSR = {
    "indptr": ([0, 2, 1, 3], [0, 1, 2], None),
    "indptr ": ([1, 1, 2, 3], [0, 1, 2], None),
    "indptr  ": ([0, 1, 2, 2], [0, 1, 2], None),
    "indices": ([0, 1, 2, 3], [0, 4, 2], None),
    "edge_ids": ([0, 1, 2, 3], [0, 1, 2], [0, -1, 2]),
}


@pytest.mark.parametrize("wrong", BAD_CSR)
def test_wrong_arrays_of_an_operator_end_the_run_and_touch_nothing(wrong, serial_gpu, promises):
    """Arrays that no graph owns: on the CPU they are refused."""
    indptr, indices, edge_ids = (None if given is None else torch.tensor(given) for given in BAD_CSR[wrong])
    x, e = torch.ones(4, 5), torch.ones(3, 1)
    graph = gsb.Graph._of_arrays(indptr, indices, edge_ids, 4)
    (words,) = promises.broken()
    assert wrong.strip() in words and len(words) < 255
    assert (
        graph.indptr.diff().ge(0).all() and 0 <= graph.indptr[0] and graph.indptr[-1] <= 3 and graph.indices.lt(4).all()
    )
    assert graph.edge_ids is None or graph.edge_ids.ge(0).all()
    out, _ = torch.ops.gsb.aggregate(
        indptr, indices, edge_ids, 4, [x, e], "mul(x0, x1)", "column,edge", "sum", "", False
    )
    assert out.shape == (3, 5) and promises.broken()
    for given in ((indptr, indices, torch.arange(2)), (indptr[:0], indices, None)):
        with pytest.raises(ValueError, match="edge_ids must have one entry per edge|destinations \\+ 1 entries"):
            gsb.Graph._of_arrays(*given, 4)


def test_an_order_that_is_none(serial_gpu, promises):
    for order in ([0, 1, 1], [0, 1, 3], [0, 1, -1]):
        assert (
            unread.order_in_range(torch.tensor(order)).ge(0).all()
            and unread.order_in_range(torch.tensor(order)).lt(3).all()
        )
        assert promises.broken() == ["order must name each of 3 rows once"] * 2
        promises.clear()
    unread.order_in_range(torch.tensor([2, 0, 1]))
    assert promises and not promises.broken()


def test_sizes_alone_are_checked_as_ever(serial_gpu):
    a, b = torch.ones(5, 3), torch.ones(2, 3, 4)
    none = torch.zeros(0, dtype=torch.int64)
    for call, words in (
        (
            lambda: gsb.segment_mm(a, b[:0], none),
            "segment_mm: lengths must sum to the number of rows 5, but they sum to 0",
        ),
        (lambda: gsb.segment_mm(a, b, torch.tensor([5])), "b has 2 matrices, but there are 1 segments"),
        (lambda: gsb.gather_mm(a, b, torch.tensor([0, 1])), "2 rows belong to segments, but the operand has 5"),
        (lambda: gsb.segment_reduce(a, offsets=none), r"offsets must have segments \+ 1 entries, got none"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert gsb.segment_mm(a[:0], b, torch.tensor([0, 0])).shape == (0, 4)
    assert (
        gsb.segment_reduce(a[:0], none).shape == (0, 3) and gsb.segment_reduce(a[:0], torch.tensor([0, 0])).eq(0).all()
    )


def test_rows_that_belong_to_nobody_are_left_out_of_a_frameworks_reduction(serial_gpu, promises):
    """As DGL's kernels do on a GPU."""
    out, chosen = run_segment_reduce("max", torch.arange(9.0)[:, None], torch.tensor([0, 3, 5]))
    assert out.flatten().tolist() == [2, 4] and chosen.flatten().tolist() == [2, 4] and not promises.broken()
    run_segment_reduce("sum", torch.arange(9.0)[:, None], torch.tensor([0, 3, 10]))
    assert promises.broken()


def test_segments_elsewhere_are_named():
    there = gsb.Segments.from_lengths(torch.tensor([2, 3])).to("meta")
    assert there.offsets.is_meta and there.num_rows == 5 and there.to("meta") is there
    for call in (
        lambda: gsb.segment_mm(torch.ones(5, 3), torch.ones(2, 3, 4), there),
        lambda: gsb.segment_reduce(torch.ones(5, 3), there),
    ):
        with pytest.raises(
            ValueError, match=r"the segments are on meta, but .* is on cpu; move them with .to\('cpu'\)"
        ):
            call()


def test_plans_without_reading():
    """Rows are cut where sizes leave room for a long one; nothing that takes a sort."""
    graph = rows_graph(gsb.Segments.from_lengths(torch.tensor([3, 4])))
    for kind in ("sum:edge", "max:edge", "map:row"):
        for features in (1, 64):
            whole = plan_unsynchronised(graph, "", kind, features, LONG_ROW)
            assert whole == TeamPlan("")
            assert plan_unsynchronised(graph, "", kind, features, LONG_ROW + 1) == TeamPartPlan(whole, PART)
    assert plan_unsynchronised(graph, "", "sum:edge", 64, BUCKETS_PAY) == TeamPartPlan(whole, PART)
