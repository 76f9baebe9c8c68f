"""The contenders of the SDDMM benchmark, each at equal work: the same float32 operands in, the same results out."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.operators.peers import TorchContender
from benchmarks.operators.sddmm_problem import Problem
from benchmarks.operators.suite import CannotDo, Contender, want_memory
from benchmarks.support.summary import OURS


class Ours(TorchContender):
    name = OURS
    note = 'gsb.sddmm, and gsb.gsddmm(graph, "add"); int32 indices'

    def prepare(self, graph):
        import gnn_sparse_backend as gsb

        self._gsb = gsb
        self._graph = gsb.Graph.from_csr(torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), graph.shape)
        self._graph.transpose()

    def forward(self, problem: Problem):
        gsb, graph, u, v = self._gsb, self._graph, problem.u, problem.v
        if problem.mode.op == "dot":
            return lambda: gsb.sddmm(graph, u, v)
        return lambda: gsb.gsddmm(graph, "add", u, v, "v", "u")


class DGL(TorchContender):
    name = "dgl"
    note = "dgl.ops.u_dot_v and u_add_v; int32 indices; COO, CSR and CSC kept"

    def prepare(self, graph):
        import dgl
        import dgl.ops

        self._ops = dgl.ops
        rows, columns = graph.shape
        # its gradient of u_add_v fails on a graph whose edges have no numbers
        structure = (
            "csc",
            (
                torch.from_numpy(graph.indptr),
                torch.from_numpy(graph.indices),
                torch.arange(graph.num_edges, dtype=torch.int32),
            ),
        )
        self._graph = dgl.heterograph(
            {("source", "edge", "destination"): structure}, num_nodes_dict={"source": columns, "destination": rows}
        )
        self._graph.create_formats_()

    def forward(self, problem):
        ops, graph, u, v = self._ops, self._graph, problem.u, problem.v
        if problem.mode.op == "dot":
            return lambda: ops.u_dot_v(graph, v, u).squeeze(-1)
        return lambda: ops.u_add_v(graph, v, u)


class PyG(TorchContender):
    name = "pyg"
    note = "index_select of both ends, then the operator, as MessagePassing does; int64, sorted by row"

    def prepare(self, graph):
        self._rows = torch.from_numpy(np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr)))
        self._columns = torch.from_numpy(graph.wide_indices)

    def forward(self, problem):
        rows, columns, u, v = self._rows, self._columns, problem.u, problem.v
        want_memory("its gathered rows", 4 * len(rows) * problem.width * (6 if problem.mode.backward else 3))
        if problem.mode.op == "dot":
            return lambda: (u.index_select(0, rows) * v.index_select(0, columns)).sum(-1)
        return lambda: u.index_select(0, rows) + v.index_select(0, columns)


class TorchSampled(Contender):
    name = "torch-sampled"
    note = "torch.sparse.sampled_addmm on CSR; int32 indices; its gradient needs a dense matrix, so forward alone"

    def prepare(self, graph):
        self._pattern = torch.sparse_csr_tensor(
            torch.from_numpy(graph.indptr),
            torch.from_numpy(graph.indices),
            torch.zeros(graph.num_edges),
            graph.shape,
            check_invariants=False,
        )

    def bind(self, problem):
        if problem.mode.op != "dot":
            raise CannotDo(f"no {problem.mode.op}")
        if problem.mode.backward:
            raise CannotDo("no sparse gradients")
        pattern, u, v = self._pattern, problem.u, problem.v.t()
        return lambda: (torch.sparse.sampled_addmm(pattern, u, v, beta=0.0).values(),)


def contenders() -> list[Contender]:
    """All contenders, ours first."""
    return [Ours(), DGL(), PyG(), TorchSampled()]
