"""``HeteroConv`` of ``SAGEConv`` or ``GraphConv`` layers with the backend and without: one operator, the same results."""
import pytest
import torch
from pyg_pair import check_pair, features
from torch_geometric import nn as gnn
from torch_geometric.explain import Explainer, GNNExplainer

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.pyg import hetero_conv
from gnn_sparse_backend.integrations.pyg.host import GRAPHS

OURS = {"rgms": 1}
COUNTS = {"user": 7, "item": 9, "shop": 4}
RELATIONS = {("user", "likes", "item"): 600, ("user", "knows", "user"): 25, ("shop", "sells", "item"): 12,
             ("item", "liked by", "user"): 30, ("item", "like", "item"): 0}
LAYERS = {"sage mean": lambda a, b: gnn.SAGEConv(a, b), "sage sum": lambda a, b: gnn.SAGEConv(a, b, "sum"),
          "sage add": lambda a, b: gnn.SAGEConv(a, b, "add"), "sage bare": lambda a, b: gnn.SAGEConv(a, b, root_weight=False, bias=False),
          "sage biased": lambda a, b: gnn.SAGEConv(a, b, root_weight=False),
          "graph add": lambda a, b: gnn.GraphConv(a, b), "graph mean": lambda a, b: gnn.GraphConv(a, b, "mean", bias=False)}


def edges():
    generator = torch.Generator().manual_seed(3)
    return {name: torch.stack([torch.randint(0, COUNTS[name[end]], (count,), generator=generator) for end in (0, 2)])
            for name, count in RELATIONS.items()}


def edge_weights():
    return {name: torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(count)).requires_grad_()
            for name, count in RELATIONS.items() if count != 12}


class Flat(torch.nn.Module):
    """A layer as a function of the features of each type: outputs in one tensor."""

    def __init__(self, conv, call=None, given=None):
        super().__init__()
        self.conv, self.call, self.given = conv, call, edges() if given is None else given

    def forward(self, *inputs):
        x = dict(zip(COUNTS, inputs))
        out = self.conv(x, self.given) if self.call is None else self.call(self.conv, x, self.given, inputs[len(COUNTS):])
        return torch.cat([out[kind].flatten() for kind in sorted(out)])


def convs(make=LAYERS["sage mean"], aggr="sum", names=RELATIONS):
    torch.manual_seed(0)
    return gnn.HeteroConv({name: make(6, 5) for name in names}, aggr).double()


def inputs():
    return [features(6, nodes=count, seed=seed) for seed, count in enumerate(COUNTS.values())]


def counted(conv, *more, **options):
    return check_pair(Flat(conv, **options), *inputs(), *more)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("kind", LAYERS)
def test_layer(kind, aggr):
    assert counted(convs(LAYERS[kind], aggr)) == OURS


def test_layers_of_two_kinds_with_and_without_their_own_features():
    mixed = iter([LAYERS["sage add"], LAYERS["graph add"], LAYERS["sage add"],
                  lambda a, b: gnn.SAGEConv(a, b, "sum", root_weight=False), LAYERS["graph add"]])
    assert counted(convs(lambda a, b: next(mixed)(a, b))) == OURS


def test_means_beside_sums_go_layer_by_layer():
    mixed = iter([LAYERS["sage mean"]] + [LAYERS["graph add"]] * 4)
    assert "rgms" not in counted(convs(lambda a, b: next(mixed)(a, b)))


@pytest.mark.parametrize("kind", ["graph add", "graph mean"])
def test_edge_weights(kind):
    weights = edge_weights()
    call = lambda conv, x, given, more: conv(x, given, edge_weight_dict=dict(zip(weights, more)))
    assert counted(convs(LAYERS[kind]), *weights.values(), call=call) == OURS
    by_place = lambda conv, x, given, more: conv(x, given, dict(zip(weights, more)))
    assert counted(convs(LAYERS[kind]), *weights.values(), call=by_place) == OURS


def test_some_edge_types():
    given = {name: index for name, index in edges().items() if name[1] != "sells"}
    assert counted(convs(), given=given) == OURS


def test_one_node_type_and_many_relations():
    generator = torch.Generator().manual_seed(1)
    given = {("n", f"r{i}", "n"): torch.randint(0, 7, (2, 5), generator=generator) for i in range(200)}
    conv = convs(names=given)
    call = lambda conv, x, given, more: conv({"n": x["user"]}, given)
    assert check_pair(Flat(conv, call, given), inputs()[0]) == OURS


@pytest.mark.parametrize("aggr", ["max", "cat", None])
def test_other_aggregations_go_layer_by_layer(aggr):
    assert "rgms" not in counted(convs(aggr=aggr))


@pytest.mark.parametrize("make", [lambda a, b: gnn.SAGEConv(a, b, "max"), lambda a, b: gnn.SAGEConv(a, b, normalize=True),
                                  lambda a, b: gnn.SAGEConv(a, b, project=True), lambda a, b: gnn.GATConv((a, a), b, add_self_loops=False)],
                         ids=["max", "normalized", "projected", "attention"])
def test_other_layers_go_one_by_one(make):
    assert "rgms" not in counted(convs(make))


def test_layers_that_learn_their_width():
    torch.manual_seed(0)
    conv = gnn.HeteroConv({name: gnn.SAGEConv((-1, -1), 5) for name in RELATIONS}).double()
    x = dict(zip(COUNTS, inputs()))
    with gsb.enabled("pyg"):
        conv(x, edges())
    assert counted(conv) == OURS


class Own(gnn.SAGEConv):
    def message(self, x_j):
        return 2 * x_j


def with_hook(name):
    def make(a, b):
        layer = gnn.SAGEConv(a, b)
        getattr(layer if name != "linear" else layer.lin_l, "register_forward_hook" if name != "message" else
                "register_message_forward_hook")(lambda module, given, out: 2 * out)
        return layer

    return make


@pytest.mark.parametrize("make", [lambda a, b: Own(a, b), with_hook("layer"), with_hook("message"), with_hook("linear")],
                         ids=["subclass", "layer hook", "message hook", "linear hook"])
def test_falls_back(make):
    assert counted(convs(make))["rgms"] == {
        "a layer is the user's, has hooks, is explained, decomposed or runs against its edges": 1}


def test_hooks_for_all_modules_are_called():
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, given, out: seen.append(type(module)))
    try:
        with gsb.enabled("pyg"):
            convs()(dict(zip(COUNTS, inputs())), edges())
    finally:
        handle.remove()
    assert seen.count(gnn.SAGEConv) == len(RELATIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_types(dtype):
    conv = convs().to(dtype)
    x = {kind: y.detach().to(dtype) for kind, y in zip(COUNTS, inputs())}
    exact = conv.double()({kind: y.double() for kind, y in x.items()}, edges())
    conv.to(dtype)
    with gsb.enabled("pyg"):
        found = conv(x, edges())
    eps = torch.finfo(dtype).eps
    for kind, right in exact.items():
        assert found[kind].dtype == dtype
        torch.testing.assert_close(found[kind].double(), right, rtol=16 * eps, atol=32 * eps)


@pytest.mark.parametrize("kind", ["sage mean", "sage bare", "sage biased"])
def test_autocast(kind):
    conv = convs(LAYERS[kind]).float()
    x = {kind: y.detach().float() for kind, y in zip(COUNTS, inputs())}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = conv(x, edges())
        with gsb.enabled("pyg"):
            found = conv(x, edges())
    for kind, right in expected.items():
        assert found[kind].dtype == right.dtype
        torch.testing.assert_close(found[kind], right, rtol=2e-2, atol=4e-2)


def test_the_graph_is_found_again_and_changes_are_noticed(monkeypatch):
    conv, x, given = convs(), dict(zip(COUNTS, inputs())), edges()
    made = []
    keep = GRAPHS._keep
    monkeypatch.setattr(GRAPHS, "_keep", lambda *arguments: made.append(1) or keep(*arguments))
    with gsb.enabled("pyg"):
        for _ in range(3):
            conv(x, given)
        conv(x, {name: index.clone() for name, index in given.items()})
        assert len(made) == 1
        given["user", "likes", "item"][1, 5] = (given["user", "likes", "item"][1, 5] + 1) % 9
        given["user", "knows", "user"][0, 3] = (given["user", "knows", "user"][0, 3] + 1) % 7
        changed = conv(x, given)
        assert len(made) == 2
        gsb.disable("pyg")
        assert not hetero_conv._seen._entries and GRAPHS.nbytes == 0
    torch.testing.assert_close(changed["item"], conv(x, given)["item"])
    torch.testing.assert_close(changed["user"], conv(x, given)["user"])


@pytest.mark.parametrize("row, value", [(0, 7), (1, 9), (0, -1)])
def test_an_index_out_of_range_is_an_error_as_before(row, value):
    given = edges()
    given["user", "likes", "item"][row, 0] = value
    with gsb.enabled("pyg"), pytest.raises(Exception, match="(?i)index|indices|bounds|range|dim_size"):
        convs()(dict(zip(COUNTS, inputs())), given)


def test_inference_mode():
    conv, given = convs(), edges()
    expected = conv(dict(zip(COUNTS, inputs())), given)
    with gsb.enabled("pyg"), torch.inference_mode():
        found = conv(dict(zip(COUNTS, inputs())), edges())
        torch.testing.assert_close({kind: y.clone() for kind, y in found.items()}, {k: y.detach() for k, y in expected.items()})
        conv(dict(zip(COUNTS, inputs())), given)
    with gsb.enabled("pyg"):  # a graph made in inference mode serves a backward pass
        conv(dict(zip(COUNTS, inputs())), given)["item"].sum().backward()


def test_results_may_be_written_to():
    conv, x = convs(LAYERS["sage bare"]), dict(zip(COUNTS, inputs()))
    with gsb.enabled("pyg"):
        out = conv(x, edges())
        kept = (out["item"] * out["item"]).sum()
        out["user"].relu_()
        (kept + out["user"].sum()).backward()
    assert all(y.grad is not None for y in x.values())


def test_explained_models_agree():
    """An explainer looks at the messages of each layer."""
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for kind, y in zip(COUNTS, inputs()):
        data[kind].x = y.detach().float()
    for name, index in edges().items():
        if index.shape[1]:
            data[name].edge_index = index
    names = list(data.edge_types)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = convs(names=names).float()

        def forward(self, x, given):
            out = self.conv(x, given)
            return torch.cat([out["item"], out["user"]])

    def explain():
        torch.manual_seed(1)
        explainer = Explainer(Model(), GNNExplainer(epochs=3), explanation_type="model", node_mask_type="attributes",
                              edge_mask_type="object", model_config={"mode": "multiclass_classification", "task_level": "node",
                                                                     "return_type": "raw"})
        return explainer(data.x_dict, data.edge_index_dict)

    expected = explain()
    with gsb.enabled("pyg"):
        found = explain()
    for name in names:
        torch.testing.assert_close(found[name].edge_mask, expected[name].edge_mask, rtol=1e-4, atol=1e-5)


def test_compiled_models_agree():
    conv, x, given = convs(), dict(zip(COUNTS, inputs())), edges()
    expected = conv(x, given)
    with gsb.enabled("pyg"):
        found = torch.compile(lambda x: conv(x, given), backend="eager")(x)
    for kind in expected:
        torch.testing.assert_close(found[kind], expected[kind])


def types(rows, count, in_order=False):
    found = torch.randint(0, count, (rows,), generator=torch.Generator().manual_seed(2))
    return found.sort().values if in_order else found


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"is_sorted": True}], ids=str)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_typed_linear(count, options):
    torch.manual_seed(0)
    layer = gnn.HeteroLinear(6, 5, count, **options).double()
    assert check_pair(layer, features(6, nodes=50), types(50, count, "is_sorted" in options)) == {"gather_mm": 1}


def test_typed_linear_that_is_promised_order_and_gets_none():
    torch.manual_seed(0)
    layer, x, kinds = gnn.HeteroLinear(6, 5, 3, is_sorted=True).double(), features(6, nodes=50), types(50, 3)
    with gsb.enabled("pyg"):
        layer(x, kinds)
    assert gsb.status().to_dict()["calls"]["pyg"]["gather_mm"]["fallbacks"] == {"the types are not sorted, as promised": 1}


def test_typed_linear_notices_changed_types_and_keeps_the_type_of_its_features():
    torch.manual_seed(0)
    layer, x, kinds = gnn.HeteroLinear(6, 5, 3), features(6, nodes=50, dtype=torch.float32), types(50, 3)
    with gsb.enabled("pyg"):
        layer(x, kinds)
        kinds[::2] = 0
        found = layer(x, kinds)
    torch.testing.assert_close(found, layer(x, kinds))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = layer(x, kinds)
        with gsb.enabled("pyg"):
            found = layer(x, kinds)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_typed_linear_in_torchscript():
    torch.manual_seed(0)
    layer, x, kinds = gnn.HeteroLinear(6, 5, 3), features(6, nodes=50, dtype=torch.float32).detach(), types(50, 3)
    expected = layer(x, kinds)
    with gsb.enabled("pyg"):
        torch.testing.assert_close(torch.jit.script(layer)(x, kinds), expected)


def test_layers_with_typed_linears():
    torch.manual_seed(0)
    graph = torch.randint(0, 23, (2, 90), generator=torch.Generator().manual_seed(7))
    heat = gnn.HEATConv(6, 8, 3, 4, 5, 2, 6, heads=2).double()
    attributes = features(2, nodes=90, seed=5)
    counts = check_pair(heat, features(6), graph, types(23, 3), types(90, 4), attributes)
    assert counts["gather_mm"] == 1
    hgt = gnn.HGTConv(6, 8, (list(COUNTS), list(RELATIONS)), heads=2).double()
    call = lambda conv, x, given, more: {kind: y for kind, y in conv(x, given).items() if y is not None}
    assert check_pair(Flat(hgt, call), *inputs())["gather_mm"] == 2
