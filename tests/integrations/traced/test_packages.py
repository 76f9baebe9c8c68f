"""What AOTInductor compiles while a framework is enabled runs in a process that has never heard of the backend."""

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
