"""What becomes of the programs of attention on their way to code."""

from __future__ import annotations

import pytest

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.ops.masked.programs.spec import MaskedSpec
from gnn_sparse_backend.ops.masked.schedules_cpu import scheduled


@pytest.mark.parametrize("make", ["forward", "backward"])
def test_exponentials_stay_in_vectors(make):
    """One that is chosen or not is a branch for each lane, which takes four times as long."""
    loops = str(stage3(*scheduled(make, MaskedSpec(64, 64, 64), False))).splitlines()
    found = [line for line in loops if "T.exp(" in line]
    assert found and not any("if_then_else" in line for line in found)
