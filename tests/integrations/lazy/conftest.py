"""Layers that are watched however small they are, and what the rule of the order of products is asked and says."""

from __future__ import annotations

import pytest

from gnn_sparse_backend.integrations.lazy import products, rows


@pytest.fixture
def every_size(monkeypatch):
    """Layers are watched however few their nodes are."""
    from gnn_sparse_backend.integrations.dgl import lazy_edges
    from gnn_sparse_backend.integrations.pyg import layers

    for module in (rows, lazy_edges, layers):
        monkeypatch.setattr(module, "LEAST", 1)


@pytest.fixture
def asked(monkeypatch):
    """What the rule said of a map that waits, of these gradients."""
    found = []

    def asking(*sizes, needed):
        found.append((said := rule(*sizes, needed=needed), needed))
        return said

    rule = products.sums_first
    monkeypatch.setattr(products, "sums_first", asking)
    return found


@pytest.fixture
def always(monkeypatch):
    """The sum goes first whatever it costs."""
    monkeypatch.setattr(products, "sums_first", lambda *sizes, needed: True)
