"""Fixtures: a database of plans of the test's own, and what is planned."""

import numpy as np
import pytest

from gnn_sparse_backend import Graph
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS
from gnn_sparse_backend.planner.database import PlanDatabase, database
from tests.ops.serial_gpu import serial_gpu  # noqa: F401


@pytest.fixture
def plans(tmp_path, monkeypatch):
    """An empty database in place of the user's, whose machine counts as measured."""
    empty = PlanDatabase(tmp_path / "cache" / "plans.json")
    empty.set_units(DEFAULT_UNITS)
    monkeypatch.setattr(database, "_database", empty)
    return empty


@pytest.fixture
def two_threads(set_threads):
    set_threads(2)


@pytest.fixture
def graph():
    """A graph of its own, so that no plan is kept with it."""
    rng = np.random.default_rng(0)
    return Graph.from_coo(rng.integers(0, 900, 6000), rng.integers(0, 800, 6000), (900, 800))
