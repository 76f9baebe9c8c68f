"""``gsb.memory`` and ``release``: every byte is listed once, what was derived is freed, and nothing else changes."""

from __future__ import annotations

import gc
import threading
import time
import types
import weakref

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats.partitions import row_groups
from gnn_sparse_backend.ops.core.arguments import structure_arguments
from gnn_sparse_backend.structures.csr import Pair
from gnn_sparse_backend.structures.derived import MOST_FACTS
from tests.ops.operators import OPERATORS, RGMS, some_graph, step
from tests.ops.oracle import graph_of


@pytest.fixture(autouse=True)
def no_shared_row_groups():
    """Graphs that other tests still hold keep theirs: those of a test are made in it."""
    row_groups._equal_rows.cache_clear()


def arrays_within(*values):
    """Every tensor and NumPy array that an object reaches, as the garbage collector knows it."""
    met, left, found = {}, list(values), []
    while left:
        each = left.pop()
        if id(each) in met or isinstance(each, (type, types.ModuleType, weakref.ref)):
            continue
        met[id(each)] = each
        if isinstance(each, types.FunctionType):
            left += [cell.cell_contents for cell in each.__closure__ or ()]  # not all the names of its module
        elif isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, np.ndarray):
            found.append(each)
            left.append(each.base)
        else:
            left += gc.get_referents(each)
    return found


def bytes_of(arrays) -> int:
    """Addresses that belong to some array's storage."""
    addresses = [np.zeros(0, np.int64)]
    for array in arrays:
        if isinstance(array, torch.Tensor):
            begin, size = array.untyped_storage().data_ptr(), array.untyped_storage().nbytes()
        elif array.base is None:
            begin, size = array.__array_interface__["data"][0], array.nbytes
        else:
            continue  # a view: what it shows is within reach
        addresses.append(np.arange(begin, begin + size))
    return np.unique(np.concatenate(addresses)).size


def calls_of(structure, names):
    """A function that runs operators, and their gradients, on operands that are drawn now."""
    torch.manual_seed(0)
    drawn = {name: {**OPERATORS, **RGMS}[name].operands(structure) for name in names}
    return lambda: [x for name, operands in drawn.items() for x in step(name, structure, operands)]


def relational(graph=None, relations=3):
    graph = some_graph() if graph is None else graph
    return gsb.RelGraph.from_graph(graph, torch.arange(graph.num_edges) % relations, relations)


def products(segments, width=5):
    """A product, a sum and a maximum over segments, with the gradients of their operands."""
    torch.manual_seed(0)
    x = torch.randn(segments.num_rows, width, requires_grad=True)
    w = torch.randn(segments.num_segments, width, 3, requires_grad=True)
    results = gsb.segment_mm(x, w, segments), *(gsb.segment_reduce(x, segments, how) for how in ("sum", "max"))
    gradients = torch.autograd.grad([y.sum() for y in results], [x, w])
    return [y.detach() for y in (*results, *gradients)]


def same_bits(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def some_segments():
    return gsb.Segments.from_index(torch.tensor([2, 0, 0, 2, 5, 2, 0]), 6)


def assert_adds_up(structure):
    held = gsb.memory(structure)
    assert held.nbytes == bytes_of(arrays_within(structure))
    return held


def assert_releases(structure):
    """Arrays that were derived are freed at once, without the garbage collector, and as many bytes as was said."""
    before = assert_adds_up(structure)
    own = {id(x) for x in own_arrays(structure)}
    derived = [weakref.ref(x) for x in arrays_within(structure) if id(x) not in own]
    assert derived
    structure.release()
    row_groups._equal_rows.cache_clear()  # which belong to the process: all graphs of so many rows share them
    assert not [x for x in (reference() for reference in derived) if x is not None]
    after = assert_adds_up(structure)
    assert before.nbytes - after.nbytes == before.derived and after.derived == 0
    assert (after.calls, after.plans) == (0, 0) and len(after.rows) == 1
    return before


def own_arrays(structure):
    names = {gsb.Graph: ("indptr", "indices", "edge_ids"), gsb.RelGraph: ("source", "destination", "relation")}
    return [getattr(structure, name) for name in names.get(type(structure), ("offsets", "order"))]


def test_bytes_of_a_graph_that_all_operators_used():
    graph = some_graph()
    calls_of(graph, OPERATORS)()
    held = assert_releases(graph)
    assert held.calls > 0 and held.plans > 0
    assert {row.of for row in held.rows} == {"graph", "transpose"}
    assert [row.what for row in held.rows if not row.derived] == ["index arrays"]


def test_bytes_of_a_large_graph_in_parts(set_threads):
    """Row groups, rows by length, parts of long rows: what only many edges ask for."""
    set_threads(2)
    graph = some_graph(3000, 2500, 60_000)
    run = calls_of(graph, ["spmm", "gspmm_mul_max"])
    for _ in range(9):
        run()
    graph.statistics, graph.fingerprint, graph.edge_numbers  # noqa: B018  # facts that are no arrays
    assert_releases(graph)


def test_bytes_of_a_relational_graph(set_threads):
    set_threads(2)
    for rel in (relational(), relational(some_graph(300, 250, 20_000), 40)):
        run = calls_of(rel, RGMS)
        before = run()
        held = assert_releases(rel)
        assert held.calls > 0 and {row.of for row in held.rows} >= {"relational graph", "both ends"}
        assert same_bits(before, run())


def test_bytes_of_the_other_orders_of_relational_products():
    """Segments and graphs within facts, with facts of their own."""
    from gnn_sparse_backend.ops.relational.executables import run_product

    rel = relational()
    x, w = torch.randn(rel.shape[1], 4), torch.randn(3, 1, 4, 2)
    for order in ("transform", "aggregate"):
        run_product(rel, x, w, None, True, False, order)
    rel.side(False).blocks(2)
    held = assert_releases(rel)
    assert {"destinations", "sources"} <= {row.of for row in held.rows}


def test_bytes_of_what_kernels_of_a_gpu_keep(serial_gpu):
    """Calls hold arrays that no fact has."""
    segments = some_segments()
    segments = gsb.Segments(segments.offsets, segments.order.long(), 7)
    gsb.segment_mm(torch.ones(7, 5), torch.ones(6, 5, 3), segments)
    assert serial_gpu and "calls" in {row.what for row in assert_releases(segments).rows}
    rel = relational()
    calls_of(rel, ["rgms_weighted"])()
    assert_releases(rel)


def test_bytes_of_segments():
    for segments in (some_segments(), gsb.Segments.from_lengths(torch.tensor([3, 0, 4]))):
        before = products(segments)
        held = assert_releases(segments)
        assert "RowsGraph" in {row.what for row in held.rows}
        assert same_bits(before, products(segments))


@pytest.mark.parametrize("name", ["nothing", "no_rows", "no_columns", "no_edges"])
def test_empty_structures(name, zoo):
    graph = graph_of(zoo[name])
    graph.transpose()
    for structure in (graph, relational(graph), gsb.Segments.from_lengths(torch.zeros(0, dtype=torch.long))):
        assert assert_adds_up(structure).rows[0].what == "index arrays"
        structure.release()
        assert gsb.memory(structure).derived == 0
    x = torch.ones(graph.shape[1], 2, requires_grad=True)
    gsb.spmm(graph, x).sum().backward()
    assert_adds_up(graph)


def test_shared_storage_counts_once():
    """Arrays cut from one are one; a fact that is a view of the arrays takes nothing."""
    whole = torch.tensor([9, 0, 1, 3, 1, 0, 1], dtype=torch.int32)
    graph = gsb.Graph.from_csr(whole[1:4], whole[4:], (2, 2), trusted=True)
    assert assert_adds_up(graph).nbytes == whole.nbytes
    graph.in_degrees  # noqa: B018  # by way of a NumPy view of ``indptr``, which is not where the storage begins
    held = assert_adds_up(graph)
    assert [(row.what, row.nbytes) for row in held.rows] == [("index arrays", whole.nbytes), ("InDegrees", 8)]


@pytest.mark.parametrize("name", [*OPERATORS, *RGMS])
def test_results_after_a_release_are_the_same_bits(name):
    """Forward, and backward of a call made before it."""
    operator = {**OPERATORS, **RGMS}[name]
    graph = relational() if name in RGMS else some_graph()
    torch.manual_seed(0)
    operands = operator.operands(graph)
    before = step(name, graph, operands)
    under_way = operator.run(graph, *operands)
    graph.release()
    gradients = torch.autograd.grad(under_way, operands, torch.ones_like(under_way))
    assert same_bits(before, [under_way.detach(), *gradients])
    graph.release()
    assert same_bits(before, step(name, graph, operands))


def test_a_second_derivative_across_a_release():
    graph = some_graph()
    x, w = torch.randn(12, 3, requires_grad=True), torch.randn(40, requires_grad=True)

    def derivatives(release):
        y = gsb.spmm(graph, x, w, "mean").square().sum()
        release()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        release()
        return torch.autograd.grad(first.square().sum(), (x, w))

    assert same_bits(derivatives(lambda: None), derivatives(graph.release))


def test_a_transpose_that_somebody_holds_stays():
    graph = some_graph()
    transpose = graph.transpose()
    transpose.in_degrees  # noqa: B018
    before = gsb.memory(graph)
    assert [(row.of, row.what, row.derived) for row in before.rows] == [
        ("graph", "index arrays", False),
        ("transpose", "index arrays", False),
        ("transpose", "InDegrees", True),
    ]
    graph.release()
    assert graph.transpose() is transpose
    assert gsb.memory(graph).nbytes == before.nbytes - before.derived == bytes_of(arrays_within(graph))
    gsb.spmm(transpose, torch.ones(9, 2))
    del transpose
    assert gsb.memory(graph).rows[1].derived
    graph.release()
    assert len(gsb.memory(graph).rows) == 1


def test_a_transpose_alone_keeps_what_it_was_computed_from():
    """The order of non-zeros within rows is in the arrays that the user gave, and nowhere else."""
    graph = gsb.Graph.from_csr(torch.tensor([0, 3]), torch.tensor([2, 0, 1]), (1, 3))
    transpose = graph.transpose()
    del graph
    held = gsb.memory(transpose)
    assert [(row.of, row.derived) for row in held.rows] == [("graph", False), ("transpose", False)]
    transpose.release()
    assert transpose.transpose().indices.tolist() == [2, 0, 1]


def test_a_transpose_that_was_given_is_not_computed_anew():
    """Its rows may be in another order than those that would be computed."""
    given = [torch.tensor(a, dtype=torch.int32) for a in ([0, 2, 2], [1, 0], [1, 0])]
    asked = []
    graph = gsb.Graph.from_csr(
        torch.tensor([0, 1, 2]), torch.tensor([0, 0]), (2, 2), opposite=lambda: asked.append(1) or given
    )
    assert graph.transpose().indices.tolist() == [1, 0]
    graph.release()
    assert graph.transpose().indices.tolist() == [1, 0] and asked == [1]


def test_release_while_the_transpose_is_being_made(monkeypatch):
    graph, side, others = some_graph(), Pair.side, []

    def interrupted(pair, index):
        csr = side(pair, index)
        others.append(threading.Thread(target=graph.release))
        others[-1].start()
        others[-1].join(0.1)
        return csr

    monkeypatch.setattr(Pair, "side", interrupted)
    transpose = graph.transpose()
    for other in others:
        other.join()
    assert transpose.unsynchronised is None and graph.transpose() is transpose


@pytest.mark.parametrize("kind", ["graph", "relational"])
def test_release_beside_calls_in_other_threads(kind):
    structure = some_graph() if kind == "graph" else relational()
    run = calls_of(structure, ["spmm_weighted_mean", "gat_attention"] if kind == "graph" else ["rgms_mean"])
    expected, faults, done = run(), [], threading.Event()

    def work():
        try:
            while not done.is_set():
                assert same_bits(expected, run())
        except Exception as fault:
            faults.append(fault)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(50):
        gsb.memory(structure)
        structure.release()
        time.sleep(0.002)
    done.set()
    for worker in workers:
        worker.join()
    assert not faults


def test_more_facts_than_are_kept():
    """The older half goes, and is derived again."""
    graph = some_graph()
    first = graph.in_degrees
    for groups in range(1, 2 * MOST_FACTS):
        structure_arguments(graph, groups)
        assert len(graph.facts) <= MOST_FACTS
    again = graph.in_degrees
    assert again is not first and torch.equal(again, first)


def test_the_table():
    graph = some_graph()
    graph.in_degrees, graph.transpose().inverse_in_degrees
    assert str(gsb.memory(graph)) == (
        "┏━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┓\n"
        "┃ of        ┃ what                                  ┃ bytes ┃\n"
        "┡━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━┩\n"
        "│ graph     │ index arrays                          │   360 │\n"
        "│ graph     │ InDegrees                             │    36 │\n"
        "│ transpose │ index arrays                          │   372 │\n"
        "│ transpose │ InverseInDegrees(dtype=torch.float32) │    48 │\n"
        "├───────────┼───────────────────────────────────────┼───────┤\n"
        "│           │ 0 calls and 0 plans are known         │   816 │\n"
        "└───────────┴───────────────────────────────────────┴───────┘\n"
    )


@pytest.mark.parametrize("given", [None, torch.ones(3), some_graph().in_degrees, {}])
def test_other_things_have_no_memory(given):
    with pytest.raises(
        TypeError,
        match=rf"memory: expected a gsb\.Graph, RelGraph, .* or nn\.SparseTensor, got {type(given).__name__}$",
    ):
        gsb.memory(given)
