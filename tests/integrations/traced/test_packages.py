"""What is exported, and what AOTInductor compiles, runs in another process: with PyTorch alone where it is a
framework's, and with the operators that it calls imported where it calls them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch_geometric.nn import SAGEConv

import gnn_sparse_backend as gsb

NODES, WIDTH = 1 << 12, 128  # rows enough for sums of ours, and products that are added in place

_LOAD = """
import sys, torch, torch._export, torch._inductor
path, kept = sys.argv[1:]
load = getattr(torch._inductor, "aoti_load_package", lambda path: torch._export.aot_load(path, "cpu"))
inputs, expected = torch.load(kept, weights_only=True)
torch.testing.assert_close(tuple(load(path)(*inputs)), expected, rtol=1e-4, atol=1e-4)
assert "gnn_sparse_backend" not in sys.modules
"""


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = SAGEConv(WIDTH, WIDTH)

    def forward(self, x, edges):
        return self.layer(x, edges).relu(), x.sum(0)


def package(model, inputs, folder) -> str:
    program = torch.export.export(model, inputs)
    if hasattr(torch._inductor, "aoti_compile_and_package"):
        return torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    options = {"aot_inductor.output_path": str(folder / "model.so")}  # before PyTorch 2.6
    return torch._inductor.aot_compile(program.module(), inputs, options=options)


@pytest.mark.slow
def test_a_package_needs_pytorch_alone(tmp_path):
    model, inputs = Network(), (torch.randn(NODES, WIDTH), torch.randint(NODES, (2, 4 * NODES)))
    with torch.no_grad():
        expected = model(*inputs)
        with gsb.enabled("pyg"):
            path = package(model, inputs, tmp_path)
    torch.save((inputs, expected), tmp_path / "kept.pt")
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, path, str(tmp_path / "kept.pt")], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]


_LOAD_CALLS = """
import sys, torch, torch._export, torch._inductor
from gnn_sparse_backend import spmm  # the operator that the program calls
program, path, kept = sys.argv[1:]
load = getattr(torch._inductor, "aoti_load_package", lambda path: torch._export.aot_load(path, "cpu"))
inputs, expected = torch.load(kept, weights_only=True)
torch.testing.assert_close(torch.export.load(program).module()(*inputs), expected)
torch.testing.assert_close(load(path)(*inputs), expected)
"""


class Calls(torch.nn.Module):
    """Calls an operator on a graph that it holds."""

    def __init__(self, graph):
        super().__init__()
        self.graph, self.map = graph, torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, weight):
        return gsb.spmm(self.graph, self.map(x), weight, reduce="mean").relu()


@pytest.mark.slow
def test_a_program_that_calls_operators_is_loaded_where_these_are_imported(tmp_path):
    model = Calls(gsb.Graph.from_coo(*torch.randint(100, (2, 600)), (100, 100)))
    inputs = torch.randn(100, WIDTH), torch.rand(600)
    with torch.no_grad():
        torch.save((inputs, model(*inputs)), tmp_path / "kept.pt")
        torch.export.save(torch.export.export(model, inputs), tmp_path / "program.pt2")
        path = package(model, inputs, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _LOAD_CALLS, str(tmp_path / "program.pt2"), path, str(tmp_path / "kept.pt")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
