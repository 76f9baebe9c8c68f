"""What a process pays before its first result: with its kernels in the cache it imports nothing of TVM's Python."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
import sys
import torch
import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache.default import stats
gsb.enable("pyg")
from torch_geometric.nn import GATConv, SAGEConv
nodes, edges = 3000, 200_000
index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
x = torch.ones(nodes, 8, requires_grad=True)
for layer in (SAGEConv(8, 8), GATConv(8, 8)):
    layer(x, index).sum().backward()
graph = gsb.Graph.from_coo(index[1], index[0], (nodes, nodes))
gsb.spmm(graph, x).sum().backward()
print(stats().compiles, "tvm" in sys.modules)
"""


def test_a_process_with_a_full_cache_imports_no_tvm(tmp_path):
    environment = {**os.environ, "GSB_CACHE_DIR": str(tmp_path / "cache")}
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        found.append(done.stdout.split())
    (compiled, imported), (again, imported_again) = found
    assert int(compiled) > 0 and imported == "True"
    assert int(again) == 0 and imported_again == "False"
