"""``gsb.schedule``: kernels by a user's schedule are right, never taken for others, and gone when it is."""

from __future__ import annotations

import functools
import threading
from dataclasses import replace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler import StageIError, primitive, sparse_fuse, sparse_reorder, unroll_and_jam
from gnn_sparse_backend.compiler.own_schedules import SCHEDULED, in_force
from tests.ops.convolution.pairs import one_each
from tests.ops.operators import OPERATORS, RGMS, ROUNDING, some_graph

# by operator of `gsb.schedule`, what calls it
CALLS = {
    "spmm": "spmm",
    "weighted_mean": "spmm_weighted_mean",
    "aggregate": "gspmm_div_sum",
    "sddmm": "sddmm",
    "edge_map": "gsddmm_div",
    "attention": "attention",
    "edge_softmax": "edge_softmax",
    "rgms": "rgms_weighted",
    "segment_mm": "segment_mm",
    "gather_mm": "gather_mm",
}


def without_vectors(schedule, kernel):
    """A schedule that applies to every kernel of a CPU, and gives other code."""
    return [step for step in schedule if step.name != "vectorize_all"]


@pytest.fixture(autouse=True)
def _nothing_in_force():
    assert in_force.schedules == ()
    yield
    assert in_force.schedules == ()


def ours(kernels):
    return {kernel.key for kernel in kernels if not kernel.scheduled_by}


def step(operator, graph, operands):
    """(result and gradients, kernels of the forward and of the backward pass)."""
    out = operator.run(graph, *operands)
    kernels = [*gsb.last_run().kernels]
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    gradients = torch.autograd.grad(out, operands, cotangent)
    return [out.detach(), *gradients], kernels + [*gsb.last_run().kernels]


@pytest.mark.short(4)
@pytest.mark.parametrize("name", CALLS)
def test_an_operator_runs_by_it_forward_and_backward_and_then_as_before(name):
    operator, graph = {**OPERATORS, **RGMS}[CALLS[name]], some_graph()
    if CALLS[name] in RGMS:
        graph = gsb.RelGraph.from_graph(graph, torch.arange(graph.num_edges) % 3, 3)
    operands = operator.operands(graph)
    exact, _ = step(operator, graph, [x.detach().double().requires_grad_() for x in operands])
    for _ in range(3):  # whatever is kept for calls like the last
        before, kernels = step(operator, graph, operands)
    seen = []

    def noted(schedule, kernel):
        seen.append(kernel)
        return without_vectors(schedule, kernel)

    with gsb.schedule(name, noted):
        for _ in range(3):
            found, own = step(operator, graph, operands)
        assert own and any(kernel.scheduled_by == "noted" for kernel in own)
        for x, y in zip(found, exact, strict=True):
            torch.testing.assert_close(x.double(), y, atol=ROUNDING[x.dtype], rtol=ROUNDING[x.dtype])
    assert seen and all(name in kernel.operators and kernel.device == "cpu" for kernel in seen)
    after, again = step(operator, graph, operands)
    assert ours(again) == ours(kernels) and not {kernel.key for kernel in own if kernel.scheduled_by} & ours(kernels)
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def test_a_convolution_runs_by_it():
    kernel_map = one_each()
    x, w = torch.randn(kernel_map.shape[1], 8), torch.randn(kernel_map.num_offsets, 8, 16)
    before = gsb.sparse_conv(x, w, kernel_map)
    with gsb.schedule("sparse_conv", without_vectors):
        found = gsb.sparse_conv(x, w, kernel_map)
        assert "without_vectors" in {kernel.scheduled_by for kernel in gsb.last_run().kernels}
    torch.testing.assert_close(found, before, atol=1e-4, rtol=1e-4)


def test_every_name_is_one_of_explain_or_of_a_function():
    from gnn_sparse_backend.ops.core.prepared import PREPARED

    assert {name for name in SCHEDULED if name not in PREPARED} <= {*gsb.__all__}
    scheduled = {name for prepared in PREPARED.values() for name in prepared.scheduled}
    assert scheduled <= SCHEDULED and {"spmm", "sddmm", "rgms", "attention", "sparse_conv"} <= scheduled


def test_only_the_kernels_that_it_names():
    graph = some_graph()
    asked = []
    which = {"dtype": torch.float64, "features": 5, "reduce": "sum", "device": "cpu"}
    with gsb.schedule("spmm", lambda schedule, kernel: asked.append(kernel), **which):
        for dtype, width, reduce in ((torch.float64, 5, "sum"), (torch.float32, 5, "sum"), (torch.float64, 6, "max")):
            gsb.spmm(graph, torch.randn(12, width, dtype=dtype), reduce=reduce)
        gsb.sddmm(graph, *(torch.randn(n, 5, dtype=torch.float64) for n in graph.shape))
    assert {(kernel.dtype, kernel.features, kernel.reduce) for kernel in asked} == {("float64", 5, "sum")}
    assert str(asked[0]) == "sum of 5 features (float64) on cpu"


def test_the_last_one_is_asked_first_and_may_leave_it_to_the_others():
    graph, x = some_graph(), torch.randn(12, 7)
    x_of = functools.partial(gsb.spmm, graph, x)
    first = gsb.schedule("spmm", without_vectors)
    second = gsb.schedule("sum", lambda schedule, kernel: None)
    try:
        x_of()
        assert gsb.last_run().kernels[0].scheduled_by == "without_vectors"
        first.remove()
        x_of()
        assert gsb.last_run().kernels[0].scheduled_by == ""
    finally:
        first.remove()
        second.remove()


def test_explain_and_last_run_say_who_schedules():
    graph, x = some_graph(), torch.randn(12, 7)
    rel = gsb.RelGraph.from_graph(graph, torch.arange(graph.num_edges) % 3, 3)
    line = "schedule: by gsb.schedule('spmm', without_vectors, features=7)"
    with gsb.schedule("spmm", without_vectors, features=7), gsb.schedule("rgms", without_vectors):
        assert line in str(gsb.explain(graph, "weighted_max", 7)) and line in str(gsb.explain(graph, "linear", (7, 3)))
        assert line not in str(gsb.explain(graph, "dot", 7)) and line not in str(gsb.explain(graph, "edge_softmax", 2))
        assert "schedule: by gsb.schedule('rgms', without_vectors)" in str(gsb.explain(rel, "rgms", 7))
        gsb.spmm(graph, x)
        assert "scheduled by without_vectors" in str(gsb.last_run())
    assert "schedule: by" not in str(gsb.explain(graph, "sum", 7))
    gsb.spmm(graph, x)
    assert "scheduled by" not in str(gsb.last_run())


@pytest.mark.short(7)
@pytest.mark.parametrize(
    "own, error, words",
    [
        (lambda schedule, kernel: 1 // 0, StageIError, "raised ZeroDivisionError"),
        (lambda schedule, kernel: 3, TypeError, "gave 3 of type int"),
        (lambda schedule, kernel: (*schedule, "fast"), TypeError, "gave 'fast' of type str"),
        (lambda schedule, kernel: (*schedule, unroll_and_jam("none", 2)), StageIError, "has no iteration 'none'"),
        (lambda schedule, kernel: (*schedule, renamed()), StageIError, "parameters .* became"),
        (lambda schedule, kernel: (*schedule, for_a_gpu()), StageIError, "gave steps for a GPU"),
        (lambda schedule, kernel: (*schedule, broken()), StageIError, "does not apply: ScheduleError"),
    ],
)
def test_what_is_no_schedule_is_an_error_that_quotes_it_before_anything_runs(own, error, words):
    graph, x = some_graph(), torch.randn(12, 3)
    want = gsb.spmm(graph, x)
    runs = gsb.last_run().steps
    with gsb.schedule("spmm", own):
        for _ in range(2):
            with pytest.raises(error, match=f"(?s)gsb.schedule\\('spmm', <lambda>\\) for sum of 3 features.*{words}"):
                gsb.spmm(graph, x)
            assert gsb.last_run().steps == ()
    assert runs and torch.equal(gsb.spmm(graph, x), want)


@primitive(stage=1)
def renamed(program):
    buffers = tuple(replace(b, name="Z") if b.name == "X0" else b for b in program.buffers)
    return replace(program, buffers=buffers)


@primitive(on_gpu=True)
def for_a_gpu(stage2):
    return stage2


@primitive()
def broken(stage2):
    from tvm import s_tir

    s_tir.Schedule(stage2.function).get_sblock("nothing")


@primitive(stage=1)
def over_edges(program):
    """One loop over all edges, each of which searches for its row and its group."""
    rows, edges = program.iteration("rows"), program.iteration("edges")
    axes, kinds, variables = rows.axes + edges.axes, rows.kinds + edges.kinds, rows.variables + edges.variables
    whole = replace(edges, axes=axes, kinds=kinds, variables=variables)
    return sparse_fuse(replace(program, iterations=(whole,)), "edges", ("G", "I", "J"))


@primitive(stage=1)
def features_outside(program):
    """Each feature summed over its row by itself."""
    (rows,), edges, features = program.iterations, program.iteration("edges_tile_0"), program.iteration("edges_0")
    axes, kinds, variables = (
        edges.axes + features.axes,
        edges.kinds + features.kinds,
        edges.variables + features.variables,
    )
    whole = replace(features, name=edges.name, axes=axes, kinds=kinds, variables=variables)
    body = tuple(whole if each is edges else each for each in rows.body)
    program = replace(program, iterations=(replace(rows, body=body),))
    return sparse_reorder(program, edges.name, (axes[1].name, axes[0].name))


def without(schedule, *names):
    return tuple(step for step in schedule if step.name not in names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dot_products_in_one_loop_over_edges(dtype):
    graph = some_graph()
    operands = OPERATORS["sddmm"].operands(graph, dtype)
    exact = OPERATORS["sddmm"].run(graph, *(x.detach().double() for x in operands))
    with gsb.schedule("sddmm", lambda schedule, kernel: (over_edges(), *without(schedule, "unroll_and_jam"))):
        found = OPERATORS["sddmm"].run(graph, *operands)
        assert "while" in gsb.last_run().kernels[0].script("stage3")
    torch.testing.assert_close(found.double(), exact, atol=ROUNDING[dtype], rtol=ROUNDING[dtype])


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_sums_with_the_features_outside_of_edges(reduce):
    graph, x = some_graph(), torch.randn(12, 5)
    want = gsb.spmm(graph, x, reduce=reduce)
    with gsb.schedule("spmm", lambda schedule, kernel: (features_outside(), *without(schedule, "prefetch_gather"))):
        torch.testing.assert_close(gsb.spmm(graph, x, reduce=reduce), want)
        assert "features_outside" in gsb.last_run().kernels[0].script("plan")


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (("spmv", without_vectors), ValueError, "unknown operator 'spmv': choose from"),
        (("spmm", 3), TypeError, "function must be callable, got 3"),
        (("spmm", len), TypeError, "is no Python function"),
    ],
)
def test_bad_arguments_are_quoted(arguments, error, words):
    with pytest.raises(error, match=words):
        gsb.schedule(*arguments)
    with pytest.raises(ValueError, match="not told apart by 'width'"):
        gsb.schedule("spmm", without_vectors, width=3)


def test_functions_of_other_code_have_other_kernels():
    def of(count):
        def turns(schedule, kernel):
            return *schedule, unroll_and_jam("edges", count)

        return turns

    graph, (u, v) = some_graph(), (torch.randn(n, 1) for n in some_graph().shape)
    keys = set()
    for count in (2, 3, 2):
        with gsb.schedule("edge_map", of(count)):
            gsb.gsddmm(graph, "sub", u, v, "v", "u")
            keys.add(gsb.last_run().kernels[0].key)
    assert len(keys) == 2


def test_threads_that_call_while_it_comes_and_goes_never_keep_its_kernels():
    graph, x = some_graph(), torch.randn(12, 9)
    want, key = gsb.spmm(graph, x), gsb.last_run().kernels[0].key
    stop, wrong = threading.Event(), []

    def call():
        while not stop.is_set():
            if not torch.allclose(gsb.spmm(graph, x), want, atol=1e-5):
                wrong.append("result")

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        with gsb.schedule("spmm", without_vectors):
            gsb.spmm(graph, x)
            if author_of_last() != "without_vectors":
                wrong.append("default inside")
        gsb.spmm(graph, x)
        if gsb.last_run().kernels[0].key != key:
            wrong.append("own outside")
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def author_of_last() -> str:
    return gsb.last_run().kernels[0].scheduled_by


def test_what_is_measured_is_measured_without_it():
    graph = some_graph(300, 300, 9000)
    with gsb.schedule("spmm", without_vectors):
        (row,) = gsb.precompile(graph, 4, ("sum",), 5, progress=False, backward=False).rows
    assert row.state == "not measured: a schedule of yours is in force"
