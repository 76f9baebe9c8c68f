"""What PyG's layers derive of an index of few edges, self loops and normalisations, is what PyG derives."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.pyg.few.normalised import gcn_norm_of_few
from tests.integrations.pyg.pair import EDGES, NODES, edges, features

pytestmark = pytest.mark.few


def test_what_layers_derive_is_found_again():
    index = edges().clone()
    with gsb.enabled("pyg"):
        first = pyg.GCNConv(8, 6)
        first(features(8, dtype=torch.float32), index)
        from torch_geometric.nn.conv import gcn_conv

        one, other = (gcn_conv.gcn_norm(index, None, NODES) for _ in range(2))
        assert one[0] is other[0] and one[1] is other[1]
        one[1].mul_(2)  # somebody writes to what was handed out
        assert not torch.equal(gcn_conv.gcn_norm(index, None, NODES)[1], one[1])


@pytest.mark.parametrize("dtype", [None, torch.float64], ids=str)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("which", EDGES)
def test_normalisation_is_that_of_pyg_bit_for_bit(which, loops, flow, dtype):
    index = edges(which)
    expected = gcn_norm(index, None, NODES, False, loops, flow, dtype)
    found = gcn_norm_of_few(index, None, NODES, False, loops, flow, dtype)
    assert found is not None
    for one, other in zip(found, expected):
        assert torch.equal(one, other) and one.dtype is other.dtype


def test_normalisation_of_others_is_left():
    index = edges()
    assert gcn_norm_of_few(index, torch.rand(90), NODES) is None
    assert gcn_norm_of_few(index) is None
    assert gcn_norm_of_few(index, None, NODES, dtype=torch.bfloat16) is None
    for value in (-1, NODES):
        wrong = index.clone()
        wrong[0, 3] = value
        assert gcn_norm_of_few(wrong, None, NODES) is None
        assert gcn_norm_of_few(wrong.flip(0), None, NODES) is None
