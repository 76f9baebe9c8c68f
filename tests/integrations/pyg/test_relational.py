"""``RGCNConv`` and ``FastRGCNConv`` with the backend and without: one operator of ours, the same outputs and
gradients.
"""

import pytest
import torch
from torch_geometric import nn as gnn

import gnn_sparse_backend as gsb
from tests.covering import covering
from tests.integrations.pyg.features import steps
from tests.integrations.pyg.pair import EDGES, NODES, check_pair, edges, features
from tests.ops.allocations import recorded

OURS = {"rgms": 1}
KINDS = [gnn.RGCNConv, gnn.FastRGCNConv]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def types(edge_index, relations=3):
    return torch.randint(0, relations, edge_index.shape[1:], generator=torch.Generator().manual_seed(2))


def made(layer):
    torch.manual_seed(0)
    return layer().double()


@pytest.mark.parametrize(
    "kind, options, aggr, name",
    covering(
        {
            "kind": KINDS,
            "options": [{}, {"num_bases": 2}, {"num_blocks": 2}],
            "aggr": ["mean", "add", "sum"],
            "name": list(EDGES),
        }
    ),
)
def test_layer(kind, options, aggr, name):
    edge_index = edges(name)
    layer = made(lambda: kind(6, 4, 3, aggr=aggr, **options))
    assert check_pair(layer, features(6), edge_index, types(edge_index)) == OURS


@pytest.mark.parametrize("options", [{"root_weight": False}, {"bias": False}, {"is_sorted": True}], ids=str)
@each_kind
def test_options(kind, options):
    edge_index = edges()
    given = types(edge_index).sort().values
    assert check_pair(made(lambda: kind(6, 4, 3, **options)), features(6), edge_index, given) == OURS


@each_kind
def test_relations_without_edges(kind):
    edge_index = edges()
    assert check_pair(made(lambda: kind(6, 4, 40)), features(6), edge_index, types(edge_index) * 13) == OURS


@each_kind
def test_bipartite(kind):
    edge_index = torch.stack([edges()[0], edges()[1] % 7])
    pair = (features(6), features(3, nodes=9, seed=1))
    assert check_pair(made(lambda: kind((6, 3), 4, 3)), pair, edge_index, types(edge_index)) == OURS


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("bases", [None, 2])
@each_kind
def test_embeddings(kind, bases, given):
    """Nodes without features, or features that number the rows of the weights."""
    edge_index = edges()
    numbers = torch.arange(NODES).flip(0) if given else None
    layer = made(lambda: kind(NODES, 4, 3, num_bases=bases))
    assert check_pair(layer, numbers, edge_index, types(edge_index)) == OURS


@pytest.mark.short(1)
@pytest.mark.parametrize("width", [64, None])
def test_many_relations_of_bases_want_no_matrix_each(width):
    """Neither with features nor with nodes that have none, for which PyG makes 244 MiB of matrices."""
    nodes, relations = 1000, 1000
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, nodes, (2, 20_000), generator=generator)
    edge_type = torch.randint(0, relations, (20_000,), generator=generator)
    torch.manual_seed(0)
    layer = gnn.RGCNConv(width or nodes, 64, relations, num_bases=4)
    x = torch.randn(nodes, width, generator=generator) if width else None
    with recorded() as found, gsb.enabled("pyg"):
        layer(x, edge_index, edge_type).sum().backward()
    assert 0 < found.largest < 4 * relations * 64 * 64 / 1.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@each_kind
def test_types(kind, dtype):
    edge_index = edges()
    given = types(edge_index)
    torch.manual_seed(0)
    layer = kind(6, 4, 3).to(dtype)
    x = features(6, dtype=dtype)
    expected = layer(x, edge_index, given)
    with gsb.enabled("pyg"):
        actual = layer(x, edge_index, given)
    assert actual.dtype == expected.dtype
    tolerance = 1e-5 if dtype is torch.float32 else 5e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


class Own(gnn.RGCNConv):
    def message(self, x_j, edge_type_ptr):
        return 2 * x_j


class Named(gnn.RGCNConv):
    """A subclass that changes nothing of the messages."""


def test_subclasses():
    edge_index = edges()
    given = types(edge_index)
    assert check_pair(made(lambda: Named(6, 4, 3)), features(6), edge_index, given) == OURS
    assert check_pair(made(lambda: Own(6, 4, 3)), features(6), edge_index, given)["rgms"] == {
        "the layer's methods are the user's": 1
    }


def test_falls_back():
    edge_index = edges()
    given = types(edge_index)
    run = lambda layer: check_pair(layer, features(6), edge_index, given)["rgms"]
    hooked = made(lambda: gnn.RGCNConv(6, 4, 3))
    hooked.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    assert run(hooked) == {"the layer has hooks": 1}
    against = made(lambda: gnn.RGCNConv(6, 4, 3, flow="target_to_source"))
    assert run(against) == {"the layer is explained, decomposed or runs against its edges": 1}


def test_a_maximum_is_taken_relation_by_relation():
    edge_index = edges()
    assert check_pair(made(lambda: gnn.RGCNConv(6, 4, 3, aggr="max")), features(6), edge_index, types(edge_index)) == {
        "copy.max": 3
    }


def test_changed_edge_types_are_noticed():
    edge_index, layer, x = edges("large"), made(lambda: gnn.RGCNConv(6, 4, 3)), features(6)
    given = types(edge_index)
    with gsb.enabled("pyg"):
        layer(x, edge_index, given)
        given[::2] = 0
        actual = layer(x, edge_index, given)
    torch.testing.assert_close(actual, layer(x, edge_index, given))


@steps
def test_torchscript():
    edge_index, x = edges(), features(6, dtype=torch.float32).detach()
    torch.manual_seed(0)
    layer, given = gnn.FastRGCNConv(6, 4, 3), types(edge_index)
    expected = layer(x, edge_index, given)
    with gsb.enabled("pyg"):
        torch.testing.assert_close(torch.jit.script(layer)(x, edge_index, given), expected)
