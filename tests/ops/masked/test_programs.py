"""What becomes of the programs of attention on their way to code."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.ops.masked.arrays import tile_reach
from gnn_sparse_backend.ops.masked.programs.spec import MaskedSpec
from gnn_sparse_backend.ops.masked.schedules_cpu import scheduled


@pytest.mark.short(1)
@pytest.mark.parametrize("make", ["forward", "backward"])
def test_exponentials_stay_in_vectors(make):
    """One that is chosen or not is a branch for each lane, which takes four times as long."""
    loops = str(stage3(*scheduled(make, MaskedSpec(64, 64, 64), False))).splitlines()
    found = [line for line in loops if "T.exp(" in line]
    assert found and not any("if_then_else" in line for line in found)


@pytest.mark.parametrize(("block", "line", "group"), [(8, 8, 16), (12, 16, 4), (32, 32, 8)])
def test_groups_of_rows_reach_from_their_first_column_to_their_last(block, line, group):
    dense = torch.rand(70, 61, generator=torch.Generator().manual_seed(0)) < 0.05
    mask = gsb.masks.from_dense(dense, block=block)
    reach = tile_reach(mask, line, group).view(-1, -(-line // group) + 1, 2).tolist()
    assert reach[0] == [[0, block]] * len(reach[0]) and len(reach) == len(mask.tiles) + 1
    for tile, found in zip(mask.tiles, reach[1:]):
        parts = [tile[n : n + group] for n in range(0, line, group)]
        for part, bounds in zip([*parts, tile], found, strict=True):
            columns = part.amax(0).nonzero().flatten().tolist() if len(part) else []
            assert bounds == ([columns[0], columns[-1] + 1] if columns else [0, 0])
