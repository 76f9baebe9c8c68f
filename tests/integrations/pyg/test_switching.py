"""Enabling replaces a few attributes; disabling restores every one; the counts are exact."""

import importlib
import sys
import types

import pytest
import torch
import torch_geometric
from torch_geometric import nn as gnn
from torch_geometric.nn.aggr import base
from torch_geometric.nn.conv import MessagePassing

import gnn_sparse_backend as gsb
from tests.integrations.pyg.features import GATHER
from tests.integrations.pyg.pair import DEGREES, calls, edges, features


def attributes() -> dict:
    """Every attribute of every module and class of PyG, by identity."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("torch_geometric"):
            for key, value in vars(module).items():
                found[name, key] = id(value)
                if isinstance(value, type) and value.__module__.startswith("torch_geometric"):
                    found |= {(name, key, inner): id(held) for inner, held in vars(value).items()}
    return found


def test_disable_restores_every_attribute():
    importlib.import_module("torch_geometric.nn.models")
    gsb.enable("pyg")  # the first time imports modules
    gsb.disable("pyg")
    before = attributes()
    for _ in range(2):
        gsb.enable("pyg")
        during = attributes()
        changed = {key for key in during if during[key] != before.get(key)}
        assert ("torch_geometric.utils", "spmm") in changed
        assert any(key[-1] == GATHER for key in changed)
        gsb.enable("pyg")
        assert attributes() == during
        gsb.disable("pyg")
        assert attributes() == before


@pytest.mark.parametrize("name", ["a_users_module", "chunk"])  # which Python has a module of, too
def test_modules_imported_in_between_are_restored_too(name, monkeypatch):
    original = torch_geometric.utils.spmm
    user = types.ModuleType(name)
    user.product = original
    monkeypatch.setitem(sys.modules, name, user)
    with gsb.enabled("pyg"):
        assert user.product is torch_geometric.utils.spmm is not original
        user.another = torch_geometric.utils.spmm
    assert user.product is user.another is original


def test_failure_half_way_leaves_nothing(monkeypatch):
    from gnn_sparse_backend.integrations import pyg

    before = getattr(MessagePassing, GATHER), base.scatter, torch_geometric.utils.spmm

    def broken(original):
        raise OSError("no")

    monkeypatch.setattr(pyg, "kept", broken)
    with pytest.raises(OSError):
        gsb.enable("pyg")
    assert (getattr(MessagePassing, GATHER), base.scatter, torch_geometric.utils.spmm) == before


def test_counts_add_up_over_layers_and_epochs():
    model = torch.nn.ModuleList([gnn.SAGEConv(5, 5), gnn.SAGEConv(5, 5, aggr="max"), gnn.GCNConv(5, 5)])
    x, edge_index = features(5, dtype=torch.float32).detach(), edges("large")
    with gsb.enabled("pyg"):
        for _ in range(3):
            out = x
            for layer in model:
                out = layer(out, edge_index)
            out.sum().backward()
    assert gsb.status().to_dict()["calls"]["pyg"] == {
        "copy.mean": {"ours": 3, "fallbacks": {}},
        "mul.sum": {"ours": 3, "fallbacks": {}},
        "copy.max": {"ours": 3, "fallbacks": {}},
        # the normalisation of one edge index is computed once
        "scatter.sum": {"ours": 0, "fallbacks": {DEGREES: 1}},
    }
    for layer in model:
        layer(x, edge_index)
    assert calls() == {"copy.mean": 3, "mul.sum": 3, "copy.max": 3}


def test_reasons_show_in_the_status():
    index = torch.tensor([0, 0, 1])
    with gsb.enabled("pyg"):
        torch_geometric.utils.softmax(torch.zeros(3, 0), index, num_nodes=2)
        torch_geometric.utils.scatter(torch.ones(3, 2), index, reduce="any")
    found = gsb.status().to_dict()["calls"]["pyg"]
    assert found["softmax"] == {"ours": 0, "fallbacks": {"the features have width 0": 1}}
    assert found["scatter.any"] == {"ours": 0, "fallbacks": {"the reduction is 'any'": 1}}
