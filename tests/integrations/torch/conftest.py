"""A framework that replaces nothing: what is on while any is enabled is then all that there is."""

from __future__ import annotations

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core import registry
from gnn_sparse_backend.integrations.torch import random
from gnn_sparse_backend.ops.random import dropout as formulas


@pytest.fixture
def some_framework(monkeypatch):
    """It is called "some", and is not enabled yet."""
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("some", lambda: None, lambda: None)
    yield
    gsb.disable()


@pytest.fixture
def all_draws_ours(some_framework, monkeypatch):
    """Every size is ours, and both ways to a dropout are met by the sizes of the tests."""
    monkeypatch.setattr(random, "LEAST", 1)
    monkeypatch.setattr(formulas, "ONE_PASS", 400)
