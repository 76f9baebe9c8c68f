"""Programs are run unchanged for some steps, on generated data, and timed; what does not run is told."""

import argparse
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.programs import __main__ as programs

pytest.importorskip("torch_geometric")
OPTIONS = argparse.Namespace(warm=1, steps=2, timeout=120.0, threads=1, runs=1)
PROGRAM = """
import torch
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

loader = DataLoader(TUDataset("data", "MUTAG"), batch_size=32)
conv = GINConv(torch.nn.Linear(7, 2))
optimiser = torch.optim.Adam(conv.parameters())
for epoch in range(100):
    for data in loader:
        optimiser.zero_grad()
        out = global_add_pool(conv(data.x, data.edge_index), data.batch)
        torch.nn.functional.cross_entropy(out, data.y).backward()
        optimiser.step()
"""


@pytest.mark.slow
def test_a_program_is_timed_with_and_without(tmp_path):
    script = tmp_path / "gin.py"
    script.write_text(PROGRAM)
    found = programs.measure("pyg", script, OPTIONS)
    assert found["script"] == "gin" and found["alone"] > 0 and found["ours"] > 0
    assert found["losses"][0] == pytest.approx(found["losses"][1], rel=1e-4)


@pytest.mark.slow
def test_a_program_that_fails_is_told(tmp_path):
    script = Path(tmp_path / "wrong.py")
    script.write_text("raise ValueError('no such data')")
    assert programs.once("pyg", script, False, OPTIONS) == "ValueError: no such data"


def test_the_table():
    console = Console(record=True, width=120)
    measured = [
        {"script": "gin", "alone": 0.02, "ours": 0.01, "speedup": 2.0, "losses": [0.5, 0.5]},
        {"script": "rgcn", "failed": "URLError", "ours": False},
    ]
    programs.show("pyg", measured, console)
    text = console.export_text()
    assert "1 programs: median 2.00, geometric mean 2.00, 0 under 0.97" in text
    assert "left out: rgcn: URLError" in text
