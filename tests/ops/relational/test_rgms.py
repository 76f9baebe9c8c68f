"""``gsb.rgms`` against every edge's own product, in plain torch float64."""

import importlib
import shutil

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats
from gnn_sparse_backend.ops.relational import executables as rgms_kernels
from gnn_sparse_backend.ops.relational import panels_cpu
from gnn_sparse_backend.ops.relational.operators import traced_rel_graph
from gnn_sparse_backend.planner.cpu import relational as relational_rules
from gnn_sparse_backend.runtime.type_names import accumulator_of
from gnn_sparse_backend.structures.relational.sides import RowTasks
from tests.covering import covering
from tests.ops.allocations import largest_of_step
from tests.ops.message_oracle import DTYPES, LAYOUTS, assert_close_to, case_name, values

# name: sources, destinations, relations, edges
SIZES = {
    "mixed": (9, 11, 4, 120),
    "one_relation": (7, 5, 1, 60),
    "many_relations": (12, 8, 1000, 90),
    "sparse": (40, 50, 3, 30),
    "few_sources": (2, 60, 3, 200),
    "few_rows": (60, 2, 3, 200),
    "one_edge": (1, 1, 2, 1),
}
FEATURES = [(1, 1, 1), (7, 70, 1), (8, 24, 4)]
WEIGHTS = ["none", "flat", "column"]
COMPILER = shutil.which("g++") or shutil.which("clang++")
INDUCTOR = pytest.param(
    "inductor",
    "mean",
    marks=[pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler")],
)


def triples(name, seed=0):
    """(source, destination, relation, (destinations, sources), relations); relation 0 is the largest, others may be
    empty.
    """
    sources, destinations, relations, count = SIZES[name]
    generator = torch.Generator().manual_seed(seed)
    source, destination, relation = (
        torch.randint(0, n, (count,), generator=generator) for n in (sources, destinations, relations)
    )
    relation[::3] = 0
    return source, destination, relation, (destinations, sources), relations


def hub():
    """A destination of degree 20,000 in one relation, others short."""
    source, destination, relation, shape, relations = triples("mixed")
    many = torch.arange(20_000)
    return (
        torch.cat([source, many % 9]),
        torch.cat([destination, torch.full_like(many, 3)]),
        torch.cat([relation, torch.full_like(many, 2)]),
        shape,
        relations,
    )


def make(arrays):
    source, destination, relation, shape, relations = arrays
    return gsb.RelGraph.from_triples(source, destination, relation, shape, relations)


def dense(w):
    """(R, B, fi, fo) or (R, F_in, F_out) as whole matrices."""
    return w if w.dim() == 3 else torch.stack([torch.block_diag(*blocks) for blocks in w])


def oracle(arrays, x, w, a=None, reduce="sum"):
    source, destination, relation, shape, relations = arrays
    message = torch.einsum("ei,eio->eo", x[source], dense(w)[relation])
    if a is not None:
        message = message * a.reshape(-1, 1)
    if reduce == "mean":
        counts = torch.zeros(shape[0], relations, dtype=torch.float64)
        counts.index_put_((destination, relation), torch.ones(len(source), dtype=torch.float64), accumulate=True)
        message = message / counts[destination, relation].unsqueeze(1)
    return message.new_zeros(shape[0], message.shape[1]).index_add(0, destination, message)


def operands(arrays, features, weight="none", power=1):
    (source, _, _, shape, relations), (fi, fo, blocks) = arrays, features
    w = values(2, relations, fi, fo) if blocks == 1 else values(2, relations, blocks, fi // blocks, fo // blocks)
    a = {"none": None, "flat": values(3, len(source)), "column": values(3, len(source), 1)}[weight]
    return [y for y in (values(1, shape[1], fi), w, a) if y is not None]


def check(arrays, ours, exact, dtype, reduce="sum", roundings=0, layouts=None):
    """Values and gradients of ``ours`` on operands of ``dtype`` against the oracle, each within its rounding."""
    layouts = layouts or [LAYOUTS["plain"]] * len(exact)
    given = [layout(y.to(dtype)).requires_grad_() for y, layout in zip(exact, layouts)]
    inputs = [layout(y).clone().requires_grad_() for y, layout in zip(exact, layouts)]
    sizes = [y.detach().abs().requires_grad_() for y in inputs]
    actual, expected, magnitude = (
        ours(*given),
        oracle(arrays, *inputs, reduce=reduce),
        oracle(arrays, *sizes, reduce=reduce),
    )
    assert actual.dtype == dtype and actual.is_contiguous()
    assert_close_to(actual, expected, magnitude, roundings)
    cotangent = values(4, *expected.shape)
    for found, right, bound in zip(
        torch.autograd.grad(actual, given, cotangent.to(dtype)),
        torch.autograd.grad(expected, inputs, cotangent),
        torch.autograd.grad(magnitude, sizes, cotangent.abs()),
    ):
        assert found.dtype == dtype and found.shape == right.shape
        # a product that is stored for another pass is rounded once more
        assert_close_to(found, right, bound, max(roundings, 1))


CASES = covering(
    {
        "name": list(SIZES),
        "features": FEATURES,
        "weight": WEIGHTS,
        "reduce": ["sum", "mean"],
        "dtype": DTYPES,
        "bits": [32, 64],
        "layout": ["plain", "every_second_row", "last_dimension_first", "offset"],
    },
    as_one=True,
)


@pytest.mark.short(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, set_index_bits, poisoned_memory):
    name, features, weight, reduce, dtype, bits, layout = case
    set_index_bits(bits)
    arrays = triples(name)
    exact = operands(arrays, features, weight)
    # weights and divisors of a mean are rounded before they are used
    check(
        arrays,
        lambda x, w, a=None: gsb.rgms(make(arrays), x, w, a, reduce),
        exact,
        dtype,
        reduce,
        roundings=2 * (reduce == "mean"),
        layouts=[LAYOUTS[layout]] * 2 + [LAYOUTS["plain"]],
    )


@pytest.mark.parametrize("order", relational_rules.ORDERS)
@pytest.mark.parametrize("features", [(5, 7, 1), (8, 24, 4)], ids=str)
@pytest.mark.parametrize("name", ["mixed", "many_relations", "few_sources"])
def test_every_order_is_the_same_operator(name, features, order):
    arrays = triples(name)
    rel, exact = make(arrays), operands(arrays, features, "flat")
    for reduce in ("sum", "mean"):
        for dtype in (torch.float64, torch.bfloat16):
            x, w, a = (y.to(dtype) for y in exact)
            w = w if w.dim() == 4 else w.unsqueeze(1)
            a = a.to(accumulator_of(dtype))
            found = rgms_kernels.run_product(rel, x, w, a, reduce == "mean", False, order)
            bound = oracle(arrays, *(y.abs() for y in exact), reduce=reduce)
            assert_close_to(found, oracle(arrays, *exact, reduce=reduce), bound, roundings=2)


def test_the_planner_orders_by_pairs():
    """Few sources, many edges each: a product for each source. Few rows: their sums are multiplied."""
    wide, narrow = (10**6, 10**3, 10**6), (10**3, 10**6, 10**6)
    assert relational_rules.by_column(*wide, 64, 64, 1, 4) and not relational_rules.by_column(*narrow, 64, 64, 1, 4)
    assert relational_rules.sum_by_columns(*wide, 64, 64) and not relational_rules.sum_by_columns(*narrow, 64, 64)


def two_kinds(seed=0):
    """Relation 0 leads from few sources to many destinations, relation 1 back, relation 2 has no edges."""
    generator = torch.Generator().manual_seed(seed)
    many, few = (torch.randint(0, n, (400,), generator=generator) for n in (90, 3))
    return torch.cat([few, many]), torch.cat([many, few]), torch.arange(2).repeat_interleave(400), (90, 90), 3


@pytest.mark.short(1)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("tasks", [2, 3])
def test_each_relation_has_its_own_order(tasks, reduce, monkeypatch):
    monkeypatch.setattr(panels_cpu, "row_task_count", lambda *_: tasks)
    arrays = two_kinds()
    rel, exact = make(arrays), operands(arrays, (64, 16, 1), "flat")
    check(arrays, lambda x, w, a: gsb.rgms(rel, x, w, a, reduce), exact, torch.float32, reduce, roundings=2)
    kept = [value for fact, value in rel.ends.facts.items() if isinstance(fact, RowTasks) and not fact.transposed]
    ((_, gathers, scatters),) = kept
    assert set(gathers.relation.tolist()) == {1} and set(scatters.relation.tolist()) == {0}
    assert gathers.tasks == scatters.tasks == tasks


@pytest.mark.short(1)
@pytest.mark.parametrize("weighted, first", [(False, 0), (True, 1)])
def test_batches_at_the_limit_of_one_thread_compile_once(weighted, first):
    """Widths that nothing else here uses; the sums of one graph go by one thread, those of the other by several."""
    generator = torch.Generator().manual_seed(0)
    rels = [
        make(
            (
                torch.randint(0, 200, (edges,), generator=generator),
                torch.randint(0, 400, (edges,), generator=generator),
                torch.randint(0, 4, (edges,), generator=generator),
                (400, 200),
                4,
            )
        )
        for edges in (300, 1600)
    ]
    features = 8 + first, 10 + weighted
    assert [relational_rules.is_small(rel.counts, *features) for rel in rels] == [True, False]

    def step(rel):
        given = [
            y.float().requires_grad_()
            for y in (values(1, 200, features[0]), values(2, 4, *features), values(3, rel.num_edges))
        ]
        gsb.rgms(rel, *given[: 2 + weighted]).sum().backward()

    step(rels[first])
    before = stats()
    step(rels[1 - first])
    assert (stats().compiles, stats().disk_loads) == (before.compiles, before.disk_loads)


@pytest.mark.short(1)
@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_of_size_pairs_is_stored(compiled):
    """Neither in the forward nor in the backward pass, nor with the structure: relations whose products are made by row
    pairs, by column pairs and by either."""
    torch._dynamo.reset()
    few, many, edges, width = 4, 4_000, 12_000, 32
    generator = torch.Generator().manual_seed(0)
    draw = lambda nodes: torch.randint(0, nodes, (edges,), generator=generator)
    arrays = (
        torch.cat([draw(few), draw(many), draw(many)]),
        torch.cat([draw(many), draw(few), draw(many)]),
        torch.arange(3).repeat_interleave(edges),
        (many, many),
        3,
    )
    rel = make(arrays)
    inputs = [
        torch.randn(*shape, generator=generator).requires_grad_()
        for shape in ((many, width), (3, width, width), (3 * edges,))
    ]
    layer = lambda x, w, a: gsb.rgms(rel, x, w, a, "mean")
    layer = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    stored = lambda x, w, a: (x[arrays[0]].unsqueeze(1) @ w[arrays[2]]).squeeze(1) * a.unsqueeze(1)
    pairs = min(rel.side(end).pairs.count for end in (False, True))
    # a row for each node, or a few numbers of int64 for each edge
    assert largest_of_step(layer, inputs) <= max(4 * many * width, 2 * 8 * 3 * edges) < 4 * pairs * width / 1.5
    assert largest_of_step(stored, inputs) >= 4 * 3 * edges * width  # which is seen


@pytest.mark.short(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=case_name)
def test_hub(dtype, poisoned_memory):
    arrays = hub()
    check(arrays, lambda x, w: gsb.rgms(make(arrays), x, w), operands(arrays, (150, 3, 1)), dtype)


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "reduce, blocks, recorded", [("sum", 2, "eager"), ("mean", 1, "eager"), ("mean", 2, "torch.library")]
)
def test_gradcheck(reduce, blocks, recorded, monkeypatch):
    if recorded == "torch.library":
        monkeypatch.setattr(
            importlib.import_module("gnn_sparse_backend.ops.relational.api"), "is_plain", lambda *operands: False
        )
    arrays = triples("mixed")
    small = tuple(y[:12] for y in arrays[:3]) + arrays[3:]
    rel = make(small)
    inputs = [y.requires_grad_() for y in operands(small, (2, 4, blocks), "flat")]
    function = lambda x, w, a: gsb.rgms(rel, x, w, a, reduce)
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.short(1)
@pytest.mark.parametrize("features", [(4, 6, 2)], ids=str)
def test_operators_of_torch_library(features):
    arrays = triples("mixed")
    rel, (x, w, a) = make(arrays), (y.requires_grad_() for y in operands(arrays, features, "flat"))
    w = (w if w.dim() == 4 else w.unsqueeze(1)).detach().requires_grad_()
    g = values(5, arrays[3][0], features[1]).requires_grad_()
    head = traced_rel_graph(rel).arguments
    torch.library.opcheck(torch.ops.gsb.rgms_product.default, (*head, x, w, a, True, False, ""))
    torch.library.opcheck(torch.ops.gsb.rgms_sum.default, (*head, x, g, a, features[2], True, False))
    torch.library.opcheck(torch.ops.gsb.rgms_dot.default, (*head, x, w, g, True, False))
    with pytest.raises(ValueError, match="do not go with RelGraph"):
        torch.ops.gsb.rgms_product(*head, x[1:], w, a, True, False, "")


@pytest.mark.parametrize("backend, reduce", [("aot_eager", "sum"), ("aot_eager", "mean"), INDUCTOR])
def test_compiled(backend, reduce):
    torch._dynamo.reset()
    arrays = triples("mixed")
    rel, inputs = make(arrays), [y.requires_grad_() for y in operands(arrays, (5, 3, 1), "flat")]
    function = lambda x, w, a: torch.relu(gsb.rgms(rel, x * 2, w, a, reduce)).sum(1)
    expected = function(*inputs)
    actual = torch.compile(function, fullgraph=True, backend=backend)(*inputs)
    cotangent = values(9, *expected.shape)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent)
    )


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (4, 3)])
@pytest.mark.parametrize("relations", [0, 2])
def test_no_edges(shape, relations, poisoned_memory):
    none = torch.empty(0, dtype=torch.int64)
    rel = gsb.RelGraph.from_triples(none, none, none, shape, relations)
    x, w = torch.ones(shape[1], 3, requires_grad=True), torch.ones(relations, 3, 2, requires_grad=True)
    for reduce in ("sum", "mean"):
        out = gsb.rgms(rel, x, w, reduce=reduce)
        assert torch.equal(out, torch.zeros(shape[0], 2))
        assert all(torch.equal(g, torch.zeros_like(y)) for g, y in zip(torch.autograd.grad(out.sum(), (x, w)), (x, w)))


@pytest.mark.parametrize("fi, fo", [(0, 2), (2, 0)])
def test_features_of_width_zero(fi, fo):
    rel = make(triples("mixed"))
    x, w = torch.ones(9, fi, requires_grad=True), torch.ones(4, fi, fo, requires_grad=True)
    out = gsb.rgms(rel, x, w)
    assert torch.equal(out, torch.zeros(11, fo))
    assert [g.shape for g in torch.autograd.grad(out.sum(), (x, w))] == [x.shape, w.shape]


def test_the_same_bits_for_any_number_of_threads():
    generator = torch.Generator().manual_seed(0)
    source, destination = (torch.randint(0, 700, (9000,), generator=generator) for _ in range(2))
    relation = (torch.rand(9000, generator=generator) ** 3 * 20).long()
    rel = gsb.RelGraph.from_triples(source, destination, relation, (700, 700))
    x, w, a, g = (torch.randn(*s, generator=generator) for s in ((700, 24), (20, 24, 40), (9000,), (700, 40)))
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 7, 2):
            torch.set_num_threads(count)
            inputs = [y.clone().requires_grad_() for y in (x, w, a)]
            out = gsb.rgms(rel, *inputs, reduce="mean")
            found.append([out, *torch.autograd.grad(out, inputs, g)])
    finally:
        torch.set_num_threads(threads)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_reaches_its_neighbours_alone(bad):
    arrays = triples("sparse")
    source, destination, _, shape, _ = arrays
    x, w = (y.float() for y in operands(arrays, (5, 19, 1)))
    w += 0.25
    x[source[0], 2] = bad
    out = gsb.rgms(make(arrays), x, w)
    reached = torch.zeros(shape[0], dtype=torch.bool)
    reached[destination[source == source[0]]] = True
    assert not out[reached].isfinite().all(1).any() and out[~reached].isfinite().all()


def test_structure_is_derived_once():
    rel = make(triples("mixed"))
    x, w = values(1, 9, 4), values(2, 4, 4, 4)
    first = gsb.rgms(rel, x, w, reduce="mean")
    known = {fact: id(value) for keeps in (rel, rel.ends, rel.side(False)) for fact, value in keeps.facts.items()}
    assert torch.equal(gsb.rgms(rel, x, w, reduce="mean"), first)
    again = {fact: id(value) for keeps in (rel, rel.ends, rel.side(False)) for fact, value in keeps.facts.items()}
    assert known == again


def test_autocast_as_a_matrix_product():
    arrays = triples("mixed")
    x, w, a = (y.float() for y in operands(arrays, (5, 3, 1), "flat"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = gsb.rgms(make(arrays), x, w, a)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, gsb.rgms(make(arrays), x.bfloat16(), w.bfloat16(), a.bfloat16()))
