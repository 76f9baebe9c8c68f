"""gsb.precompile on operators of one plan: attention, relational products, products and reductions of segments.

Their kernels are compiled, several at a time; the calls after that compile nothing, and give what they gave before.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.ops.attention import schedules_cpu as attention
from gnn_sparse_backend.ops.core import cuda_build
from gnn_sparse_backend.ops.core.prepared import PREPARED
from gnn_sparse_backend.tuning import precompile as precompile_module
from gnn_sparse_backend.tuning import tune
from gnn_sparse_backend.tuning.precompile_steps import Step
from gnn_sparse_backend.tuning.tune import compile_plans

pytestmark = pytest.mark.usefixtures("plans", "two_threads")
ROWS, COLUMNS, EDGES, RELATIONS = 300, 260, 8000, 7


def numbers(below: int, count: int, seed: int) -> torch.Tensor:
    return torch.randint(below, (count,), generator=torch.Generator().manual_seed(seed))


def blocks_and_single() -> torch.Tensor:
    """Four full blocks, and single numbers, of a matrix of a shape that no block divides."""
    matrix = (torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)) < 0.02).float()
    matrix[32:64, 16:48] = 1.0
    return matrix


@pytest.fixture(scope="module")
def structures():
    """Structures of their own: edges in no order, so much work that threads share it."""
    row, col, relation = numbers(ROWS, EDGES, 0), numbers(COLUMNS, EDGES, 1), numbers(RELATIONS, EDGES, 2)
    each = torch.arange(COLUMNS)
    return {
        gsb.Graph: gsb.Graph.from_coo(row, col, (ROWS, COLUMNS)),
        gsb.RelGraph: gsb.RelGraph.from_triples(col, row, relation, (ROWS, COLUMNS), RELATIONS),
        gsb.Segments: gsb.Segments.from_index(relation, RELATIONS),
        gsb.KernelMap: gsb.KernelMap.from_pairs(
            each.repeat(8), each.repeat(8), torch.arange(9) * COLUMNS, (ROWS, COLUMNS)
        ),
        gsb.masks.Mask: gsb.masks.band(ROWS, 20, 20, block=32),
        gsb.formats.Decomposition: gsb.formats.decompose(blocks_and_single(), ["bsr(16)", "csr"]),
    }


def operands_for(shapes, dtype):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


# Each as a user calls it, beside the precompiler's own table: name, width, shapes of operands, call.
def _cases():
    h, d, f, k, b = 3, 11, 9, 10, 5
    row, col = (ROWS, h, d), (COLUMNS, h, d)
    yield "attention", (h, d), [row, col, col], gsb.attention
    yield "gat_attention", d, [(ROWS,), (COLUMNS,), (COLUMNS, d)], gsb.gat_attention
    yield (
        "weighted_attention",
        (h, d),
        [row, col, col, (EDGES, h)],
        lambda g, q, k, v, w: gsb.attention(g, q, k, v, edge_weight=w),
    )
    yield "gat_attention", (h, d), [(ROWS, h), (COLUMNS, h), col], gsb.gat_attention
    yield "gatv2_attention", (h, d), [row, col, (h, d)], gsb.gatv2_attention
    yield "edge_softmax", h + 2, [(EDGES, h + 2)], gsb.edge_softmax
    yield "rgms", (f, k), [(COLUMNS, f), (RELATIONS, f, k)], gsb.rgms
    yield "weighted_rgms", (f, k), [(COLUMNS, f), (RELATIONS, f, k), (EDGES,)], gsb.rgms
    yield "rgms_mean", (f, k), [(COLUMNS, f), (RELATIONS, f, k)], lambda g, x, w: gsb.rgms(g, x, w, reduce="mean")
    yield "rgms_blocks", (2 * b, 3 * b, b), [(COLUMNS, 2 * b), (RELATIONS, b, 2, 3)], gsb.rgms
    yield (
        "rgms_bases_mean",
        (f, k, 2),
        [(COLUMNS, f), (RELATIONS, 2), (2, f, k)],
        lambda g, x, comp, bases: gsb.rgms(g, x, (comp, bases), reduce="mean"),
    )
    yield "segment_mm", (f, k), [(EDGES, f), (RELATIONS, f, k)], lambda s, x, w: gsb.segment_mm(x, w, s)
    yield "gather_mm", (f, k), [(EDGES, f), (RELATIONS, f, k)], lambda s, x, w: gsb.gather_mm(x, w, s)
    yield (
        "gather_mm",
        (f, k),
        [(40, f), (RELATIONS, f, k)],
        lambda s, x, w: gsb.gather_mm(x, w, s, torch.arange(EDGES) * 7 % 40),
    )
    for reduce in ("sum", "mean", "max"):
        yield f"segment_{reduce}", f, [(EDGES, f)], lambda s, x, reduce=reduce: gsb.segment_reduce(x, s, reduce)
    values = int(blocks_and_single().count_nonzero())
    yield "composed_spmm", f, [(values,), (COLUMNS, f)], gsb.composed_spmm
    yield "composed_linear", f, [(values,), (f, COLUMNS)], gsb.composed_linear
    yield "composed_sddmm", f, [(ROWS, f), (COLUMNS, f)], gsb.composed_sddmm


CASES = {
    f"{name} {width} {number}": (name, width, shapes, call)
    for number, (name, width, shapes, call) in enumerate(_cases())
}
ASKED = [
    (case, dtype)
    for case, (name, width, *_) in CASES.items()
    for dtype in ("float32", *["bfloat16"] * (name in ("gat_attention", "segment_mm") and width != 11))
]


def step(call, structure, operands):
    out = call(structure, *operands)
    return [out.detach(), *torch.autograd.grad(out, operands, torch.ones_like(out))]


@pytest.mark.short(6)
@pytest.mark.parametrize("case, dtype", ASKED)
def test_calls_and_gradients_compile_nothing_afterwards(case, dtype, structures):
    name, width, shapes, call = CASES[case]
    structure, operands = structures[PREPARED[name].on], operands_for(shapes, getattr(torch, dtype))
    report = gsb.precompile(structure, {name: width}, budget="60s", dtype=dtype, progress=False)
    (row,) = report.rows
    assert report.complete and (row.state, row.features, row.dtype, row.plan) == ("compiled", width, dtype, None)
    assert f"{name} and backward" in str(report)
    before = stats()
    for _ in range(10):  # structures are kept otherwise from the eighth use on
        found = step(call, structure, operands)
    after = stats()
    assert (after.compiles, after.disk_loads) == (before.compiles, before.disk_loads)
    # fresh structures, which nobody prepared, of the same content
    fresh = {
        gsb.Graph: lambda g: gsb.Graph.from_csr(g.indptr, g.indices, g.shape, g.edge_ids),
        gsb.RelGraph: lambda g: gsb.RelGraph.from_triples(g.source, g.destination, g.relation, g.shape, RELATIONS),
        gsb.Segments: lambda s: gsb.Segments(s.offsets, s.order, s.num_rows),
        gsb.formats.Decomposition: lambda p: gsb.formats.decompose(blocks_and_single(), p.formats),
    }[PREPARED[name].on](structure)
    for one, other in zip(found, step(call, fresh, operands), strict=True):
        assert torch.equal(one, other)


def test_without_precompile_the_same_calls_compile(structures):
    """What the test above counts is what a call compiles."""
    before = stats()
    x = torch.ones(EDGES, 23, requires_grad=True)
    gsb.edge_softmax(structures[gsb.Graph], x).backward(torch.ones(EDGES, 23))
    after = stats()
    assert after.compiles + after.disk_loads == before.compiles + before.disk_loads + 2
    gsb.precompile(structures[gsb.Graph], 22, "edge_softmax", backward=False, progress=False)
    forward = stats()
    assert forward.compiles + forward.disk_loads == after.compiles + after.disk_loads + 1


@pytest.mark.short(8)
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, operator in PREPARED.items()
        if operator.form is None and not name.startswith("weighted_rgms_blocks")
    ],
)
def test_every_operator_can_be_called_at_its_widths(name, structures):
    """Shapes fit the call, in the widths of the tests above. Those that are measured are called in other tests."""
    operator = PREPARED[name]
    width = {"heads": 5, "F": 9, "D": 9, "tokens": 9, "F_out": (9, 10), "C_out": (9, 10), "Dv": (9, 10)}.get(
        operator.width[-1]
    )
    width = width or {"blocks": (10, 15, 5), "groups": (10, 15, 5), "bases": (9, 10, 2)}[operator.width[-1]]
    (width,) = operator.widths((3, 11) if len(operator.width) == 2 and operator.on is gsb.Graph else width)
    step = Step("", operator, structures[operator.on], width, torch.float32, True)
    step.run()
    assert step.ready and step.size >= 4 * sum(torch.Size(shape).numel() for shape in step.shapes)


@pytest.mark.parametrize(
    "name, width", [("gat_attention", (3, 6)), ("edge_softmax", 6), ("rgms_mean", (6, 14)), ("segment_mm", (6, 14))]
)
def test_on_a_gpu_nothing_is_compiled_or_waited_for_afterwards(name, width, serial_gpu, monkeypatch):
    built = []

    def counted(program, *rest, build=cuda_build.build):
        built.append(program.name)
        return build(program, *rest)

    def refuse(*_):
        raise AssertionError("a value was read back")

    monkeypatch.setattr(cuda_build, "build", counted)
    row, col, relation = numbers(20, 150, 3), numbers(16, 150, 4), numbers(3, 150, 5)
    operator = PREPARED[name]
    structure = {
        gsb.Graph: lambda: gsb.Graph.from_coo(row, col, (20, 16)),
        gsb.Segments: lambda: gsb.Segments.from_index(relation, 3),
        gsb.RelGraph: lambda: gsb.RelGraph.from_triples(col, row, relation, (20, 16), 3),
    }[operator.on]()
    report = gsb.precompile(structure, {name: width}, budget="60s", progress=False)
    assert report.complete and built
    built.clear()
    operands = operands_for(operator.shapes(structure, width), torch.float32)
    for method in ("item", "__bool__", "__int__", "__index__", "__float__", "tolist", "nonzero", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, method, refuse)
    step(operator.call, structure, operands)
    assert built == []


def test_what_is_measured_and_what_is_not_in_one_call(structures):
    """The plans that were measured are those that the parts of other operators run by, too."""
    graph = structures[gsb.Graph]
    features = {"weighted_sum": [12], "gat_attention": (2, 6), "edge_softmax": 2}
    report = gsb.precompile(
        [graph, structures[gsb.Segments]], {**features, "segment_sum": [6, 12]}, budget="60s", progress=False
    )
    assert report.complete and [(row.op, row.features, row.state) for row in report.rows] == [
        ("weighted_sum", 12, "measured"),
        ("weighted_sum backward", 12, "measured"),
        ("gat_attention and backward", (2, 6), "compiled"),
        ("edge_softmax and backward", 2, "compiled"),
        ("segment_sum and backward", 6, "compiled"),
        ("segment_sum and backward", 12, "compiled"),
    ]
    before = stats()
    for name, width in (("weighted_sum", 12), ("gat_attention", (2, 6)), ("edge_softmax", 2)):
        step(PREPARED[name].call, graph, operands_for(PREPARED[name].shapes(graph, width), torch.float32))
    assert (stats().compiles, stats().disk_loads) == (before.compiles, before.disk_loads)


def test_without_a_word_each_structure_has_its_own_operator(structures):
    report = gsb.precompile(list(structures.values()), 4, budget=0, progress=False)
    others = [
        f"{name} and backward" for name in ("rgms", "segment_mm", "sparse_conv", "sparse_attention", "composed_spmm")
    ]
    assert [row.op for row in report.rows] == ["sum", "sum backward", *others]
    assert {row.state for row in report.rows} == {"not reached"} and not report.complete


@pytest.fixture
def set_step(monkeypatch):
    """A function: what a step does in the place of compiling; by default it is done at once."""
    return lambda run=lambda self: setattr(self, "ready", True): monkeypatch.setattr(Step, "run", run)


def test_a_step_is_compiled_beside_others(structures, monkeypatch):
    """Neither of two operators goes on before both are being compiled."""
    met, passed = threading.Barrier(2), []

    def together(*_):
        met.wait(300)  # BrokenBarrierError where nobody else comes
        passed.append(threading.get_ident())
        raise BuildError("edge_softmax", "only who compiles is looked at")

    monkeypatch.setattr(attention, "compile_program", together)
    with pytest.raises(BuildError, match="only who compiles"):
        gsb.precompile(structures[gsb.Graph], (37, 41), "edge_softmax", "60s", progress=False)
    assert len(set(passed)) == 2


@pytest.mark.parametrize("together, most", [(1, 1), (1 << 30, 2)])
def test_large_steps_take_turns(structures, set_step, monkeypatch, together, most):
    monkeypatch.setattr(tune, "TOGETHER", together)
    running, seen, lock = [], [], threading.Lock()
    two = threading.Barrier(2)

    def run(self):
        with lock:
            running.append(self)
            seen.append(len(running))
        if most == 2:
            two.wait(300)
        with lock:
            running.remove(self)

    set_step(run)
    operator, told = PREPARED["edge_softmax"], []
    steps = [Step("", operator, structures[gsb.Graph], width, torch.float32, False) for width in (1, 2, 3, 4)]
    compile_plans(steps, 1e9, told.append, clock=lambda: 0.0)
    assert max(seen) == most and set(told) == set(steps)


def test_ctrl_c_leaves_what_was_compiled(structures, set_step, monkeypatch):
    def interrupted(steps, *_):
        steps[0].run()
        raise KeyboardInterrupt

    set_step()
    monkeypatch.setattr(precompile_module, "compile_plans", interrupted)
    report = gsb.precompile(structures[gsb.Graph], (1, 2, 3), "edge_softmax", progress=False)
    assert report.interrupted and not report.complete
    assert [row.state for row in report.rows] == ["compiled", "not reached", "not reached"]


def test_a_budget_ends_before_what_is_left(structures, set_step, monkeypatch):
    now = [0.0]

    def run(self):
        now[0] += 2.0
        self.ready = True

    set_step(run)
    monkeypatch.setattr(precompile_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(
        precompile_module, "compile_plans", lambda *_: None
    )  # all that is left to do one after the other
    report = gsb.precompile(structures[gsb.Graph], (1, 2, 3), "edge_softmax", 3, progress=False)
    assert [row.state for row in report.rows] == ["compiled", "compiled", "not reached"]


def test_the_bar_counts_them(structures, set_step, monkeypatch):
    said = []
    monkeypatch.setattr(precompile_module, "_bar", lambda shown, total: _Said(said, total))
    gsb.precompile(structures[gsb.Graph], [(2, 3), (1, 3)], "gat_attention", budget=0)
    words = "300 x 260, 8,000 edges: gat_attention and backward"
    assert said[0] == 2 and said[1:] == [
        (f"{words}, {width} features", advance) for width in ((2, 3), (1, 3)) for advance in (0, 1)
    ]
    said.clear()
    set_step()
    gsb.precompile(structures[gsb.Graph], [(2, 3), (1, 3)], "gat_attention", budget="60s")
    assert said[1] == ("compiling", 0) and sum(advance for _, advance in said[2:]) == 2
    assert set(said[2:4]) == {(f"{words}, {width} features", 1) for width in ((2, 3), (1, 3))}, "as they are compiled"


class _Said:
    def __init__(self, said, total):
        self.said = said
        said.append(total)

    def __enter__(self):
        return lambda words, advance: self.said.append((words, advance))

    def __exit__(self, *_):
        return None


@pytest.mark.parametrize(
    "on, arguments, message",
    [
        (
            gsb.Graph,
            {"ops": "gta_attention"},
            "'gta_attention'.*on a graph: sum, .*gat_attention.*on a gsb.RelGraph.*rgms, .*Segments: segment_mm",
        ),
        (gsb.Graph, {"ops": ()}, "no operator"),
        (
            gsb.Graph,
            {"ops": "rgms"},
            r"300 x 260, 8,000 edges is a graph, on which rgms does not run: choose from sum, .*edge_softmax$",
        ),
        (
            gsb.RelGraph,
            {"ops": ("sum", "attention")},
            "is a gsb.RelGraph, or a graph with edge types, on which sum does not run: choose.* rgms",
        ),
        (gsb.Graph, {"ops": ("sum", "rgms")}, "rgms runs on a gsb.RelGraph.*none was given"),
        (gsb.Segments, {"ops": "segment_median"}, "'segment_median'"),
        (gsb.Graph, {"ops": "sum", "features": [(64, 16)]}, r"features of sum must be F, .*got \(64, 16\)"),
        (
            gsb.Graph,
            {"ops": "gat_attention", "features": (8, 8, 8)},
            r"\(heads, F\), or F for operands without heads, .*got \(8, 8, 8\)",
        ),
        (gsb.Graph, {"ops": "gat_attention", "features": [(8, 0)]}, r"positive whole numbers, got \(8, 0\)"),
        (gsb.RelGraph, {"features": (64, 16, 4)}, r"rgms must be \(F_in, F_out\), or F for both, .*got \(64, 16, 4\)"),
        (gsb.RelGraph, {"features": (64, 1.5)}, r"rgms.*got 1\.5"),
        (gsb.RelGraph, {"features": "64"}, "got '64'"),
        (
            gsb.RelGraph,
            {"ops": "rgms_bases", "features": 64},
            r"rgms_bases must be \(F_in, F_out, bases\), of .*got 64",
        ),
        (
            gsb.RelGraph,
            {"ops": "rgms_blocks", "features": (64, 16, 5)},
            r"blocks must divide the others, got \(64, 16, 5\)",
        ),
        (gsb.RelGraph, {"features": []}, "no width for rgms"),
        (gsb.RelGraph, {"ops": ("rgms", "rgms_mean"), "features": {"rgms": 8}}, "'rgms_mean' is missing"),
        (gsb.RelGraph, {"ops": "rgms", "features": {"rgms": 8, "sum": 8}}, "'sum' is none of rgms"),
        (gsb.RelGraph, {"features": {"rgsm": 8}}, "unknown operator 'rgsm'"),
    ],
)
def test_wrong_names_and_widths_are_quoted(on, arguments, message, structures, set_step):
    set_step(None)
    with pytest.raises(ValueError, match=message):
        gsb.precompile(structures[on], progress=False, **arguments)


def test_widths_as_they_may_be_given():
    product, softmax = PREPARED["rgms"], PREPARED["edge_softmax"]
    assert product.widths((64, 16)) == ((64, 16),) and product.widths([64, 16]) == (64, 16)
    assert product.widths([(64, 16), (64, 16), 8]) == ((64, 16), 8) == product.widths(((64, 16), 8))
    assert softmax.widths(8) == (8,) and softmax.widths((8, 4)) == softmax.widths(iter([8, 4, 8])) == (8, 4)
