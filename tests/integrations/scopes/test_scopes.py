"""Scopes in which tensors may be lazy: what ends with them, and what is known of layers and frames."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import LazyTensor, gather
from gnn_sparse_backend.integrations.scopes import Scope, current, is_forgotten, kind_of
from gnn_sparse_backend.integrations.scopes.layers import keeps_all

pytest.importorskip("torch_geometric")
from torch_geometric import nn as gnn

from gnn_sparse_backend.integrations.pyg import layers
from gnn_sparse_backend.integrations.pyg.host import HOST, IndexEnd

INDEX = torch.tensor([0, 2, 1, 2])
EDGES = torch.stack([INDEX, torch.tensor([1, 1, 0, 2])])


def message(x):
    return gather(HOST, IndexEnd(INDEX, len(x), lambda x: x.index_select(0, INDEX)), x)


def test_what_is_held_becomes_a_tensor_at_the_end_and_what_is_not_goes():
    x = torch.randn(3, 4, requires_grad=True)
    with Scope(trusted=True) as scope:
        held = message(x) * 2
        assert type(held) is LazyTensor and current() is scope and len(list(scope.lazy())) == 1
    assert type(held) is torch.Tensor and current() is None and scope.ended
    torch.testing.assert_close(held, x.index_select(0, INDEX) * 2)


def test_nothing_is_computed_where_the_scope_ends_with_an_error():
    with pytest.raises(ValueError, match="of somebody"), Scope(trusted=True):
        held = message(torch.randn(3, 4))
        raise ValueError("of somebody")
    assert type(held) is LazyTensor and held.sum().isfinite() and type(held) is torch.Tensor


@pytest.mark.parametrize("large", [False, True])
def test_features_are_freed_with_their_layer(large, monkeypatch):
    """Python's reference counts alone free them: a circle would keep them until it looks for circles."""
    from gnn_sparse_backend.integrations.lazy import rows

    for module in (rows, layers):
        monkeypatch.setattr(module, "LEAST", 1 if large else 1 << 20)
    layer = gnn.GCNConv(4, 4)
    gc.collect()
    gc.disable()
    try:
        with gsb.enabled("pyg"):
            for _ in range(3):
                x = torch.randn(3, 4, requires_grad=True)
                seen = weakref.ref(x)
                layer(x, EDGES).sum().backward()
                del x
                assert seen() is None
    finally:
        gc.enable()


def test_whether_a_layer_hands_out_is_seen_at_its_first_call():
    class Kept(gnn.GATConv):
        """As one of PyG's that keeps its weights."""

        def message(self, x_j, alpha):
            self.kept = alpha
            return super().message(x_j, alpha)

    Kept.__module__ = Kept.message.__module__ = gnn.GATConv.__module__
    x = torch.randn(3, 4, requires_grad=True)

    def known(layer, **kwargs):
        return keeps_all((kind_of(layer, (x, EDGES), kwargs), False), False)

    ordinary, keeping = gnn.GATConv(4, 4), Kept(4, 4)
    with gsb.enabled("pyg"):
        for layer in (ordinary, keeping):
            layer(x, EDGES)
    assert known(ordinary) and not known(keeping)
    assert not known(ordinary, return_attention_weights=True)


def test_code_of_users_is_recorded_each_time():
    class Own(nn.Linear):
        pass

    x = torch.randn(3, 4)
    assert kind_of(gnn.GINConv(nn.Linear(4, 4)), (x, EDGES), {}) is not None
    assert kind_of(gnn.GINConv(Own(4, 4)), (x, EDGES), {}) is None
    hooked = gnn.GINConv(nn.Linear(4, 4))
    assert kind_of(hooked, (x, EDGES), {}) is not None
    hooked.nn.register_forward_hook(lambda *given: None)
    assert kind_of(hooked, (x, EDGES), {}) is None


@pytest.mark.slow
def test_variables_that_are_read_no_more_are_forgotten():
    # In a process of its own: once a program that Dynamo refuses to compile was tried, Python holds what a call is
    # given once more, and nothing counts as forgotten.
    call = "from tests.integrations.scopes.test_scopes import forgotten; print(*forgotten())"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=300, cwd=root)
    assert done.stdout.split() == ["True", "False", "False", "False", "False"], done.stderr


def forgotten() -> list[bool]:
    """Whether a variable is forgotten that is read no more, that is, that a list holds, and in a loop."""

    def last():
        x = object()
        return is_forgotten(x, sys._getframe(), 0)

    def read_later():
        x = object()
        found = is_forgotten(x, sys._getframe(), 0)
        return found, x

    def held_beside():
        x = object()
        others = [x]
        found = is_forgotten(x, sys._getframe(), 0)
        return found, len(others)

    def in_a_loop():
        found, x = [], object()
        for _ in range(2):
            found.append(is_forgotten(x, sys._getframe(), 0))
        return found

    return [last(), read_later()[0], held_beside()[0], *in_a_loop()]
