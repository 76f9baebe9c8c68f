"""``HeteroLinear`` and the layers of PyG that have it, with the backend and without: one grouped product, the same
results.
"""

import pytest
import torch
from torch_geometric import nn as gnn

import gnn_sparse_backend as gsb
from tests.integrations.pyg.hetero import COUNTS, RELATIONS, Flat, edges, inputs
from tests.integrations.pyg.pair import check_pair, features


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
    assert gsb.status().to_dict()["calls"]["pyg"]["gather_mm"]["fallbacks"] == {
        "the types are not sorted, as promised": 1
    }


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


def test_a_layer_with_a_typed_linear():
    torch.manual_seed(0)
    graph = torch.randint(0, 23, (2, 90), generator=torch.Generator().manual_seed(7))
    heat = gnn.HEATConv(6, 8, 3, 4, 5, 2, 6, heads=2).double()
    attributes = features(2, nodes=90, seed=5)
    counts = check_pair(heat, features(6), graph, types(23, 3), types(90, 4), attributes)
    assert counts["gather_mm"] == 1


@pytest.mark.parametrize(
    "widths", [dict.fromkeys(COUNTS, 6), {"user": 3, "item": 8, "shop": 5}], ids=["one width", "several"]
)
@pytest.mark.parametrize("lazy", [False, True], ids=["known", "lazy"])
def test_attention_with_typed_linears(widths, lazy):
    """Keys and values are one product each, of all relations; what comes before are plain products by node type."""
    torch.manual_seed(0)
    hgt = gnn.HGTConv(-1 if lazy else widths, 8, (list(COUNTS), list(RELATIONS)), heads=2).double()
    if lazy:
        with torch.no_grad():
            hgt(dict(zip(COUNTS, inputs(widths))), edges())
    call = lambda conv, x, given, more: {kind: y for kind, y in conv(x, given).items() if y is not None}
    counts = check_pair(Flat(hgt, call), *inputs(widths))
    assert counts["gather_mm"] == 2 and all(isinstance(count, int) for count in counts.values()), counts
