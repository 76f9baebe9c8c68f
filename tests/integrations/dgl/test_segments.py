"""Readouts, and products of rows with the matrix of their segment or relation."""

from functools import partial

import dgl
import dgl.backend.pytorch.sparse as dgl_sparse
import dgl.nn.pytorch as dglnn
import pytest
import torch
from dgl._sparse_ops import _segment_reduce

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import agree, calls, multigraph, normal
from tests.integrations.dgl.test_kernels import few, same
from tests.integrations.dgl.test_layers import OnGraph
from tests.ops.waits import without_waiting

LENGTHS = {"mixed": [3, 0, 1, 7, 0], "one": [9], "none": [], "empty": [0, 0], "many": [2] * 40}
REDUCED, PRODUCT, GATHERED = {"segment_reduce": (1, {})}, {"segment_mm": (1, {})}, {"gather_mm": (1, {})}


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("features", [(), (3,), (2, 3)])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_what_autograd_calls(op, features, idtype):
    for lengths in LENGTHS.values():
        offsets = torch.tensor([0, *lengths], dtype=idtype).cumsum(0).to(idtype)
        for dtype in (torch.float64, torch.float32) if features == (3,) else (torch.float64,):
            x = few(sum(lengths), *features, dtype=dtype)
            expected, chosen = _segment_reduce(op, x, offsets)
            with gsb.enabled("dgl"):
                actual, args = dgl_sparse._segment_reduce(op, x, offsets)
                assert all(not reasons for _, reasons in calls().values())
            same(actual, expected, 0.0 if op != "sum" else 1e-12 if dtype is torch.float64 else 1e-5)
            same(args, chosen)


def test_a_reduction_on_a_gpu_does_not_wait(serial_gpu, monkeypatch):
    offsets, x = torch.tensor([0, *LENGTHS["mixed"]]).cumsum(0), few(11, 3, dtype=torch.float64)
    for op in ("sum", "max", "min"):
        expected, chosen = _segment_reduce(op, x, offsets)
        with gsb.enabled("dgl"):
            dgl_sparse._segment_reduce(op, x, offsets)  # compiles
            again = partial(dgl_sparse._segment_reduce, op, x, offsets.clone())
            actual, args = without_waiting(again, monkeypatch)
            assert all(not reasons for _, reasons in calls().values())
        same(actual, expected, 0.0)
        same(args, chosen)
    assert set(serial_gpu) == {"aggregate"}


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("name", ["mixed", "one", "many"])
def test_segment_reduce(name, reduce):
    lengths = torch.tensor(LENGTHS[name])
    compute = lambda x: dgl.ops.segment_reduce(lengths, x, reduce)
    assert agree(compute, normal(int(lengths.sum()), 4).round()) == REDUCED


def test_softmax_over_segments():
    lengths = torch.tensor(LENGTHS["mixed"])
    assert agree(lambda x: dgl.ops.segment_softmax(lengths, x), normal(11, 3)) == {"segment_reduce": (2, {})}


@pytest.mark.parametrize("readout", [dglnn.SumPooling, dglnn.AvgPooling, dglnn.MaxPooling])
def test_readouts(readout):
    batch = dgl.batch([multigraph(5, 9), multigraph(1, 1), multigraph(8, 30, seed=2)])
    assert agree(OnGraph(readout(), batch), normal(14, 4)) == REDUCED


def test_readouts_of_lazy_edge_features():
    batch = dgl.batch([multigraph(5, 9), multigraph(8, 30, seed=2)])

    def compute(h):
        with batch.local_scope():
            batch.ndata["h"] = h
            batch.apply_edges(dgl.function.u_mul_v("h", "h", "s"))
            return torch.cat([dgl.sum_edges(batch, "s"), dgl.max_edges(batch, "s"), dgl.softmax_edges(batch, "s")])

    counts = agree(compute, normal(13, 4))
    assert counts == {"gsddmm": (1, {}), "segment_reduce": (4, {})}


def test_lengths_that_do_not_fit_stay_dgls():
    x, offsets = normal(9, 2), torch.tensor([0, 3, 5])
    expected, _ = _segment_reduce("sum", x, offsets)
    with gsb.enabled("dgl"):
        same(dgl_sparse._segment_reduce("sum", x, offsets)[0], expected, 1e-12)
        assert calls() == {"segment_reduce": (0, {"the lengths do not sum to the number of rows": 1})}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["mixed", "one", "many"])
def test_products_of_segments(name, dtype):
    lengths = torch.tensor(LENGTHS[name])
    a, b = normal(int(lengths.sum()), 5, dtype=dtype), normal(len(lengths), 5, 7, dtype=dtype, seed=1)
    assert agree(lambda a, b: dgl.ops.segment_mm(a, b, lengths), a, b) == PRODUCT


@pytest.mark.parametrize("shape", [(5, 7), (12, 16), (1, 1)])
def test_products_of_relations(shape):
    index = torch.randint(6, (60,), generator=torch.Generator().manual_seed(0))
    for idx in (index, index.sort().values, index.new_full((60,), 3)):

        def product(a, b, idx=idx):
            return dgl.ops.gather_mm(a, b, idx_b=idx)

        counts = agree(product, normal(60, shape[0]), normal(6, *shape, seed=1))
        assert counts == GATHERED


@pytest.mark.parametrize(
    "wrong, error",
    [
        (lambda: dgl.ops.gather_mm(normal(4, 3), normal(2, 3, 5), idx_b=torch.tensor([0, 1, 2, 0])), IndexError),
        (lambda: dgl.ops.gather_mm(normal(4, 3), normal(2, 4, 5), idx_b=torch.tensor([0, 1, 1, 0])), RuntimeError),
        (lambda: dgl.ops.segment_mm(normal(4, 3), normal(2, 4, 5), torch.tensor([2, 2])), RuntimeError),
        (lambda: dgl.ops.segment_mm(normal(4, 3), normal(2, 3, 5).float(), torch.tensor([2, 2])), RuntimeError),
        (lambda: dgl.ops.segment_mm(normal(4, 3), normal(3, 3, 5), torch.tensor([2, 2])), IndexError),
    ],
)
def test_what_dgl_refuses_keeps_its_error(wrong, error):
    with pytest.raises(error) as theirs:
        wrong()
    with gsb.enabled("dgl"), pytest.raises(error) as with_us:
        wrong()
    assert str(theirs.value) == str(with_us.value)
    assert all(ran == 0 for ran, _ in calls().values())


def test_what_pytorch_makes_of_odd_operands_stays():
    a, b = normal(4, 3), normal(2, 3, 5, seed=1)
    for compute in (
        lambda: dgl.ops.segment_mm(a, b, torch.tensor([1, 2])),  # rows are left over
        lambda: dgl.ops.gather_mm(a, b, idx_b=torch.tensor([0, -1, 1, 0])),  # counted from the end
        lambda: dgl.ops.segment_mm(a[:0], b, torch.tensor([0, 0])),
    ):
        expected = compute()
        with gsb.enabled("dgl"):
            same(compute(), expected)


@pytest.mark.parametrize("regularizer, presorted", [(None, False), ("basis", False), ("basis", True)])
def test_relational_convolution(regularizer, presorted):
    graph = multigraph(9, 40)
    kinds = torch.arange(40) % 3
    kinds = kinds.sort().values if presorted else kinds
    torch.manual_seed(0)
    layer = dglnn.RelGraphConv(6, 12, 3, regularizer, 2).double()
    call = lambda layer, graph, x, norm: layer(graph, x, kinds, norm, presorted=presorted)
    counts = agree(OnGraph(layer, graph, call), normal(9, 6), normal(40, 1, seed=2))
    assert counts == {"rgms": (1, {})}


def test_the_rows_of_a_relation_are_found_once(calls_to):
    from gnn_sparse_backend.structures.segments import Segments

    made = calls_to(Segments, "from_index")
    a, b, index = normal(60, 5), normal(6, 5, 7, seed=1), torch.arange(60) % 6
    with gsb.enabled("dgl"):
        for _ in range(3):
            dgl.ops.gather_mm(a, b, idx_b=index)
        assert len(made) == 1
        index[0] = 3
        torch.testing.assert_close(dgl.ops.gather_mm(a, b, idx_b=index)[0], a[0] @ b[3])
        assert len(made) == 2
