"""Small graphs: batches are what they say, cells run with the same numbers on both sides, and print."""

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks.small import __main__ as small
from benchmarks.small import batches, layers
from benchmarks.small.worker import Cell, Measured

pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")


@pytest.mark.parametrize("size", [*batches.SIZES, batches.BLOCK])
def test_batches(size):
    batch = batches.make(size, 8, 4, torch.Generator().manual_seed(0))
    edges = batch.edge_index
    assert edges.shape[0] == 2 and edges.is_contiguous()
    assert int(edges[0].max()) < batch.sizes[0] and int(edges[1].max()) < batch.sizes[1] and int(edges.min()) >= 0
    assert batch.x.shape == (batch.sizes[0], 8) and batch.edge_attr.shape == (edges.shape[1], 8)
    if batch.batch is None:
        assert edges.shape[1] == batches.DESTINATIONS * batches.FANOUT
    else:
        assert edges.shape[1] == 2 * batches.BONDS * batch.count
        assert torch.equal(batch.batch[edges[0]], batch.batch[edges[1]])  # no bond between molecules


@pytest.mark.parametrize("mode", ["inference", "step", "training"])
@pytest.mark.parametrize("framework", ["pyg", "dgl"])
def test_a_cell_is_the_same_at_each_making(framework, mode):
    cell = Cell(framework, "GIN", "1 molecule", "new", mode, 1)
    threads = torch.get_num_threads()
    try:
        first, second = Measured(cell), Measured(cell)
        for one, other in zip(first.first(), second.first(), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert first.turn() > 0
    finally:
        torch.set_num_threads(threads)


def test_cells_are_those_that_there_are():
    found = list(small.cells(("pyg", "dgl"), (*batches.SIZES, batches.BLOCK), ("inference", "training"), (1,)))
    assert len(set(found)) == len(found)
    assert not [cell for cell in found if cell.layer.endswith("pool") and cell.size == batches.BLOCK]
    assert {cell.layer for cell in found if cell.mode == "training" and cell.framework == "pyg"} == {
        *layers.LOOPS["pyg"]
    }


def test_the_table_tells_slow_and_wrong_cells():
    cell = Cell("pyg", "GIN", "32 molecules", "new", "step", 1)._asdict()
    measured = [
        {**cell, "alone": 2e-4, "ours": 1e-4, "speedup": 2.0},
        {**cell, "layer": "GCN", "alone": 1e-4, "ours": 2e-4, "speedup": 0.5},
        {**cell, "layer": "GAT", "alone": 1e-4, "ours": 2e-4, "speedup": None},
    ]
    console = Console(record=True, width=120)
    small.show(measured, console)
    text = console.export_text()
    assert "200 / 100 2.00" in text and "wrong" in text
    assert "3 cells: geometric mean 1.00, 1 under 0.97, 1 wrong" in text
