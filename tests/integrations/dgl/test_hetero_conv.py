"""``HeteroGraphConv`` of ``GraphConv`` layers with the backend and without: one operator, the same outputs and
gradients.
"""

import dgl
import dgl.nn.pytorch as dglnn
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.structures.relational.graph import RelGraph
from tests.integrations.dgl.oracle import agree, calls, normal

OURS = {"rgms": (1, {})}
COUNTS = {"user": 7, "item": 9, "shop": 4}
RELATIONS = {
    ("user", "likes", "item"): 30,
    ("user", "knows", "user"): 25,
    ("shop", "sells", "item"): 12,
    ("item", "liked by", "user"): 30,
    ("item", "like", "item"): 0,
}
NAMES = {"likes", "knows", "sells", "liked by", "like"}


def hetero(idtype=torch.int64):
    generator = torch.Generator().manual_seed(3)
    ends = {
        name: tuple(torch.randint(0, COUNTS[name[end]], (count,), generator=generator) for end in (0, 2))
        for name, count in RELATIONS.items()
    }
    return dgl.heterograph(ends, num_nodes_dict=COUNTS, idtype=idtype)


def convs(make=lambda name: dglnn.GraphConv(6, 5), aggregate="sum", names=NAMES):
    torch.manual_seed(0)
    conv = dglnn.HeteroGraphConv({name: make(name) for name in sorted(names)}, aggregate)
    for parameter in conv.parameters():  # biases start at zero
        torch.nn.init.normal_(parameter)
    return conv.double()


class Flat(torch.nn.Module):
    """A layer as a function of the features of each type: outputs in one tensor."""

    def __init__(self, conv, graph, call=None, kinds=tuple(COUNTS)):
        super().__init__()
        self.conv, self.graph, self.kinds, self.call = conv, graph, kinds, call

    def forward(self, *inputs):
        x = dict(zip(self.kinds, inputs))
        out = (
            self.conv(self.graph, x)
            if self.call is None
            else self.call(self.conv, self.graph, x, inputs[len(self.kinds) :])
        )
        return torch.cat([out[kind].flatten() for kind in sorted(out)])


def features(width=6, kinds=COUNTS, dtype=torch.float64):
    return [normal(count, width, seed=seed, dtype=dtype) for seed, count in enumerate(COUNTS[kind] for kind in kinds)]


def counted(conv, graph=None, more=(), **options):
    return agree(Flat(conv, hetero() if graph is None else graph, **options), *features(), *more)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize("norm", ["none", "left", "right", "both", "mixed"])
@pytest.mark.parametrize("bias", [True, False, "some"])
def test_layer(norm, bias, aggregate):
    def make(name):
        own = {"likes": "both", "knows": "left", "sells": "right"}.get(name, "none") if norm == "mixed" else norm
        return dglnn.GraphConv(6, 5, own, bias=name == "likes" if bias == "some" else bias)

    assert counted(convs(make, aggregate)) == OURS


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("widths", [(6, 1), (6, 33), (6, 6)], ids=str)
def test_widths_and_index_types(widths, idtype):
    assert counted(convs(lambda name: dglnn.GraphConv(*widths)), hetero(idtype)) == OURS


def test_weights_from_outside_and_edge_weights():
    """``mod_kwargs`` as in DGL's example of a relational graph convolution with shared bases."""

    def call(conv, graph, x, more):
        weights = more[:5]
        return conv(
            graph,
            x,
            mod_args={"knows": (weights[0], more[5])},
            mod_kwargs={name: {"weight": weight} for name, weight in zip(sorted(NAMES - {"knows"}), weights[1:])},
        )

    more = [normal(6, 5, seed=9 + i) for i in range(5)] + [normal(RELATIONS["user", "knows", "user"], seed=2)]
    for norm in ("right", "both", "none"):
        conv = convs(lambda name, norm=norm: dglnn.GraphConv(6, 5, norm, weight=False, bias=False))
        assert counted(conv, more=more, call=call) == OURS


def test_a_pair_of_features_and_a_block():
    pair = lambda conv, graph, x, more: conv(graph, (x, {kind: y * 2 for kind, y in x.items() if kind != "user"}))
    assert counted(convs(), call=pair) == OURS
    graph = hetero()
    block = dgl.to_block(
        dgl.in_subgraph(graph, {"item": [1, 2, 3], "user": [0, 4]}), {"item": [1, 2, 3], "user": [0, 4]}
    )
    inputs = [normal(block.num_src_nodes(kind), 6, seed=1) for kind in COUNTS]
    assert agree(Flat(convs(), block), *inputs) == OURS


ORDERS = {
    "types of nodes in another order than relations": [("n", "b", "z"), ("n", "a", "c"), ("z", "c", "n")],
    "relations into one type apart": [("u", "r", "v"), ("u", "s", "u"), ("w", "t", "v"), ("v", "u", "w")],
    "a type without edges into it": [("w", "r", "v"), ("w", "s", "a"), ("a", "t", "v")],
    "one type": [("n", "r", "n"), ("n", "s", "n")],
}


@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
@pytest.mark.parametrize("as_pair", [False, True], ids=["dict", "pair"])
@pytest.mark.parametrize("names", ORDERS.values(), ids=ORDERS)
def test_results_come_in_dgl_s_order(names, as_pair, order):
    """With dropout after the layer another order of node types has other masks."""
    kinds = sorted({name[end] for name in names for end in (0, 2)})[::order]
    counts = {kind: 4 + number for number, kind in enumerate(kinds)}
    graph = dgl.heterograph({name: ([0, 1, 3], [2, 1, 0]) for name in names[::order]}, num_nodes_dict=counts)
    conv = convs(names=[name for _, name, _ in names])
    x = {kind: normal(count, 6) for kind, count in counts.items()}
    given = (x, x) if as_pair else x
    expected = conv(graph, given)
    with gsb.enabled("dgl"):
        reset_status()
        found = conv(graph, given)
    assert calls() == OURS and list(found) == list(expected)
    torch.testing.assert_close(found, expected)


def test_results_of_a_block_come_in_dgl_s_order():
    seeds = {"user": [0, 4], "item": [1, 2, 3]}
    block = dgl.to_block(dgl.in_subgraph(hetero(), seeds), seeds)
    conv, x = convs(), {kind: normal(block.num_src_nodes(kind), 6) for kind in reversed(COUNTS)}
    expected = conv(block, x)
    with gsb.enabled("dgl"):
        reset_status()
        found = conv(block, x)
    assert calls() == OURS and list(found) == list(expected)


def test_a_source_without_features_takes_no_part():
    conv = convs(names=NAMES - {"sells"})
    inputs = features(kinds=("user", "item"))
    assert agree(Flat(conv, hetero(), kinds=("user", "item")), *inputs) == OURS


def test_layers_by_canonical_type_and_one_for_several():
    """As DGL takes them: a layer of the full name first, else of the name; a module may stand for several types."""
    torch.manual_seed(0)
    shared, own = dglnn.GraphConv(6, 5).double(), dglnn.GraphConv(6, 5, "right").double()
    mods = dict.fromkeys(NAMES, shared) | {("user", "likes", "item"): own}
    assert counted(dglnn.HeteroGraphConv(mods)) == OURS


def test_one_node_type_and_many_relations():
    generator = torch.Generator().manual_seed(1)
    ends = {
        ("n", f"r{i}", "n"): tuple(torch.randint(0, 9, (3,), generator=generator) for _ in "uv") for i in range(200)
    }
    graph = dgl.heterograph(ends, num_nodes_dict={"n": 9})
    conv = convs(names=[name for _, name, _ in ends])
    assert agree(Flat(conv, graph, kinds=("n",)), normal(9, 6)) == OURS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("norm", ["right", "both"])
def test_types(norm, dtype):
    conv = convs(lambda name: dglnn.GraphConv(6, 5, norm))
    exact = conv(hetero(), dict(zip(COUNTS, features())))
    conv = conv.to(dtype)
    with gsb.enabled("dgl"):
        found = conv(hetero(), dict(zip(COUNTS, features(dtype=dtype))))
    assert calls() == OURS
    for kind, right in exact.items():
        assert found[kind].dtype == dtype
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(found[kind].double(), right, rtol=16 * eps, atol=64 * eps)


@pytest.mark.parametrize(
    "options", [{"norm": "none", "bias": False}, {"norm": "right", "bias": False}, {"norm": "none"}], ids=str
)
def test_autocast(options):
    conv = convs(lambda name: dglnn.GraphConv(6, 5, **options)).float()
    x = dict(zip(COUNTS, features(dtype=torch.float32)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = conv(hetero(), x)
        with gsb.enabled("dgl"):
            found = conv(hetero(), x)
    assert calls() == OURS
    for kind, right in expected.items():
        assert found[kind].dtype == right.dtype
        torch.testing.assert_close(found[kind], right, rtol=2e-2, atol=5e-2)


def test_results_may_be_written_to():
    """As DGL's, which are tensors of their own: none is a view of another's memory."""
    conv, x = convs(lambda name: dglnn.GraphConv(6, 5, bias=False)), dict(zip(COUNTS, features()))
    with gsb.enabled("dgl"):
        x = {kind: y.requires_grad_() for kind, y in x.items()}
        out = conv(hetero(), x)
        kept = (out["item"] * out["item"]).sum()
        out["user"].relu_()
        (kept + out["user"].sum()).backward()
    assert calls() == OURS and all(y.grad is not None for y in x.values())


def test_features_may_be_written_to_before_the_gradient():
    """DGL sums first where that is narrower, and reads the sums again."""
    conv = convs(lambda name: dglnn.GraphConv(6, 7))

    def run():
        x = {kind: y * 1.0 for kind, y in zip(COUNTS, features())}
        out = conv(hetero(), x)
        for each in x.values():
            each.add_(1.0)
        return torch.autograd.grad(sum(each.square().sum() for each in out.values()), list(conv.parameters()))

    expected = run()
    with gsb.enabled("dgl"):
        found = run()
    assert calls() == OURS
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


class Own(dglnn.GraphConv):
    def forward(self, graph, feat, weight=None, edge_weight=None):
        return 2 * super().forward(graph, feat, weight, edge_weight)


class OwnHetero(dglnn.HeteroGraphConv):
    def forward(self, g, inputs, mod_args=None, mod_kwargs=None):
        return {kind: 2 * y for kind, y in super().forward(g, inputs, mod_args, mod_kwargs).items()}


def hooked(name):
    layer = dglnn.GraphConv(6, 5)
    layer.register_forward_hook(lambda module, given, out: out * 2)
    return layer


def replaced(name):
    layer = dglnn.GraphConv(6, 5)
    original = layer.forward
    layer.forward = lambda *given: 3 * original(*given)
    return layer


FALLS_BACK = {
    "hook": (hooked, "a layer is the user's, or has hooks"),
    "own forward": (replaced, "a layer is the user's, or has hooks"),
    "subclass": (lambda name: Own(6, 5), "a layer is the user's, or has hooks"),
    "parametrized": (
        lambda name: torch.nn.utils.parametrizations.orthogonal(dglnn.GraphConv(6, 5), "weight"),
        "a layer is the user's, or has hooks",
    ),
    "activation": (
        lambda name: dglnn.GraphConv(6, 5, activation=torch.relu),
        "a layer has an activation, or checks degrees",
    ),
    "no weight": (lambda name: dglnn.GraphConv(6, 6, weight=False, bias=False), "a layer has no weight, or two"),
}


@pytest.mark.parametrize("case", FALLS_BACK)
def test_falls_back(case):
    make, reason = FALLS_BACK[case]
    assert counted(convs(make))["rgms"] == (0, {reason: 1})


@pytest.mark.parametrize("norm, bias", [("right", True), ("both", False)])
def test_features_of_several_widths(norm, bias):
    widths = dict(zip(COUNTS, (3, 5, 3)))
    inputs = [normal(count, widths[kind], seed=seed) for seed, (kind, count) in enumerate(COUNTS.items())]
    sources = {name: source for source, name, _ in RELATIONS}
    conv = convs(lambda name: dglnn.GraphConv(widths[sources[name]], 5, norm, bias=bias))
    assert agree(Flat(conv, hetero()), *inputs) == OURS


def test_results_of_several_widths():
    """Of items and of users."""
    assert counted(convs(lambda name: dglnn.GraphConv(6, 4 if name in ("likes", "sells", "like") else 5))) == OURS
    with gsb.enabled("dgl"), pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        convs(lambda name: dglnn.GraphConv(6, 4 if name == "likes" else 5))(hetero(), dict(zip(COUNTS, features())))


def test_hooks_for_all_modules_are_called():
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, given, out: seen.append(type(module)))
    try:
        with gsb.enabled("dgl"):
            convs()(hetero(), dict(zip(COUNTS, features())))
    finally:
        handle.remove()
    assert seen.count(dglnn.GraphConv) == len(RELATIONS)


def test_a_subclass_of_the_container_is_called():
    torch.manual_seed(0)
    conv = OwnHetero({name: dglnn.GraphConv(6, 5) for name in NAMES}).double()
    assert counted(conv) == OURS


@pytest.mark.parametrize("aggregate", ["max", "stack", lambda each, kind: torch.stack(each).prod(0)])
def test_other_aggregations_go_layer_by_layer(aggregate):
    assert "rgms" not in counted(convs(aggregate=aggregate))


def test_other_layers_go_one_by_one():
    make = lambda name: dglnn.SAGEConv(6, 5, "mean") if name == "likes" else dglnn.GraphConv(6, 5)
    assert "rgms" not in counted(convs(make))


def test_errors_stay_dgl_s():
    with gsb.enabled("dgl"):
        with pytest.raises(KeyError):
            convs()(hetero(), dict(zip(COUNTS, features()[:1])))  # no features of items
        with pytest.raises(KeyError):
            convs(names=NAMES - {"likes"})(hetero(), dict(zip(COUNTS, features())))


def test_the_graph_is_made_once_and_goes_with_dgl_s(calls_to):
    made = calls_to(RelGraph, "_of_parts")
    graph, conv = hetero(), convs()
    x = dict(zip(COUNTS, features()))
    with gsb.enabled("dgl"):
        for _ in range(3):
            conv(graph, x)
        assert len(made) == 1
        more = dgl.add_edges(graph, [0], [0], etype="knows")
        changed = conv(more, x)
        assert len(made) == 2
    torch.testing.assert_close(changed["user"], conv(more, x)["user"])


@pytest.mark.slow
def test_compiled_models_agree():
    conv, graph, x = convs(), hetero(), dict(zip(COUNTS, features()))
    expected = conv(graph, x)
    with gsb.enabled("dgl"):
        found = torch.compile(lambda x: conv(graph, x), backend="eager")(x)
    for kind in expected:
        torch.testing.assert_close(found[kind], expected[kind])
