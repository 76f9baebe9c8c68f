"""What enabling replaces, that disabling restores it, and what is left to DGL with its reason."""

import importlib

import dgl
import dgl.backend.pytorch.sparse as dgl_sparse
import pytest
import torch
from dgl._sparse_ops import _gspmm as original_gspmm
from dgl.heterograph_index import HeteroGraphIndex

import gnn_sparse_backend as gsb
from tests.integrations.dgl.oracle import calls, normal


def test_disable_restores_every_attribute_to_the_same_object():
    modules = [
        importlib.import_module(f"dgl.{name}")
        for name in (
            "ops.spmm",
            "ops.sddmm",
            "ops.edge_softmax",
            "core",
            "backend",
            "ops.gather_mm",
            "nn.pytorch.linear",
        )
    ]
    owners = [dgl_sparse, HeteroGraphIndex, dgl.DGLGraph, dgl.ops, *modules]
    snapshot = lambda: [dict(vars(owner)) for owner in owners]
    before = snapshot()
    gsb.enable("dgl")
    during = snapshot()
    gsb.disable("dgl")
    after = snapshot()
    changed = [{name for name in old if old[name] is not new[name]} for old, new in zip(before, during)]
    assert {"_gspmm", "_gsddmm", "_gspmm_hetero", "_edge_softmax_forward"} <= changed[0]
    assert changed[1:] == [
        {"reverse", "get_relation_graph"},
        {"local_scope", "local_var", "update_all", "apply_edges", "in_degrees", "out_degrees"}
        | {"_set_n_repr", "_set_e_repr"},
        {"gspmm", "gsddmm", "gather_mm", "segment_reduce"},
        {"gspmm"},
        {"gsddmm"},
        {"edge_softmax_internal", "edge_softmax_hetero_internal"},
        {"message_passing", "invoke_gsddmm", "invoke_edge_udf", "invoke_udf_reduce"},
        {"segment_reduce", "segment_mm"},
        {"gather_mm"},
        {"gather_mm"},
    ]
    for old, new in zip(before, after):
        assert old.keys() == new.keys() and all(old[name] is new[name] for name in old)
    assert dgl_sparse._gspmm is original_gspmm


def test_nothing_is_counted_while_disabled():
    graph = dgl.rand_graph(10, 30)
    dgl.ops.copy_u_sum(graph, normal(10, 3))
    assert calls() == {}
    with gsb.enabled("dgl"):
        dgl.ops.copy_u_sum(graph, normal(10, 3))
    dgl.ops.copy_u_sum(graph, normal(10, 3))
    assert calls() == {"gspmm": (1, {})}


def test_reasons_show_in_the_status():
    graph = dgl.rand_graph(10, 30)
    x, e = normal(10, 2, 3), normal(30, 1, 3, seed=1)
    relations = dgl.heterograph({("a", "r", "a"): ([], []), ("a", "s", "a"): ([0, 1], [1, 2])}, num_nodes_dict={"a": 3})
    relations.ndata["h"] = normal(3, 2)

    def attempt(compute):
        with pytest.raises(dgl.DGLError):
            compute()

    with gsb.enabled("dgl"):
        dgl.ops.copy_u_max(graph, x)
        dgl.ops.edge_softmax(graph, e)
        attempt(lambda: dgl.ops.copy_u_sum(graph, x.long()))
        attempt(lambda: dgl.ops.u_mul_e_sum(graph, x, e.float()))
        attempt(lambda: dgl.ops.u_add_v(graph, x, e[:11]))
        attempt(lambda: dgl.ops.u_dot_v(graph, x, x[:, :, :2]))
        attempt(lambda: dgl.ops.edge_softmax(graph, e.int()))
        relations.update_all(dgl.function.copy_u("h", "m"), dgl.function.sum("m", "h"))
    assert calls() == {
        "gspmm": (1, {"dtype int64": 1, "operands of two types or devices": 1}),
        "gsddmm": (0, {"number of rows": 1, "features do not broadcast": 1}),
        "edge_softmax_forward": (1, {"dtype int32": 1}),
        "gspmm_hetero": (0, {"the first edge type has no edges: DGL computes nothing": 1}),
    }
    for text in ("dtype int64: 1", "features do not broadcast: 1", "enabled: none"):
        assert text in str(gsb.status())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda g: dgl.ops.copy_u_sum(g, torch.ones(10, 3, dtype=torch.complex64)),
        lambda g: dgl.ops.u_mul_e_sum(g, torch.ones(10, 3), torch.ones(30, 1, dtype=torch.float64)),
        lambda g: dgl.ops.copy_u_sum(g, torch.ones(9, 3)),
        lambda g: dgl.ops.copy_u_sum(g, torch.ones(11, 3)),
        lambda g: dgl.ops.u_mul_e_sum(g, torch.ones(10, 3), torch.ones(29, 1)),
        lambda g: dgl.ops.u_mul_e_sum(g, torch.ones(10, 3), torch.ones(30, 2)),
        lambda g: dgl.ops.u_dot_v(g, torch.ones(10, 3), torch.ones(10, 4)),
        lambda g: dgl.ops.u_dot_v(g, torch.ones(10, 3), torch.ones(8, 3)),
        lambda g: dgl.ops.copy_u_sum(g, None),
        lambda g: dgl.ops.copy_u_mean(g, torch.ones(11, 3)),
        lambda g: dgl.ops.gspmm(g, "mul", "mean", torch.ones(10, 3), None),
        lambda g: dgl.ops.gspmm(g, "copy_lhs", "median", torch.ones(10, 3), None),
        lambda g: dgl.ops.copy_u_sum(g, torch.ones(10, 0)),
    ],
)
def test_what_dgl_refuses_keeps_its_error(wrong):
    graph = dgl.rand_graph(10, 30)
    with pytest.raises(Exception) as theirs:
        wrong(graph)
    with gsb.enabled("dgl"), pytest.raises(theirs.type) as with_us:
        wrong(graph)
    # The message carries a time and a native stack trace: compare what is between them
    essence = lambda error: str(error.value).split("Stack trace")[0].split("] ", 1)[-1]
    assert essence(with_us) == essence(theirs)
    assert all(ran == 0 for ran, _ in calls().values())
