"""Matrices in programs of TorchScript, against the same calls in Python and against dense ones."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from gnn_sparse_backend.integrations import torch_sparse
from gnn_sparse_backend.integrations.torch_sparse import SparseTensor


def matrix(valued: bool = True) -> SparseTensor:
    torch.manual_seed(3)
    dense = torch.randint(1, 9, (5, 5)).double() * (torch.rand(5, 5) < 0.5)
    return SparseTensor.from_dense(dense, has_value=valued)


@torch.jit.script
def dense_products(mat: SparseTensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return torch_sparse.matmul(mat, x, "mean"), torch_sparse.matmul(mat.t(), x)


@torch.jit.script
def sparse_products(left: SparseTensor, right: SparseTensor) -> tuple[SparseTensor, SparseTensor, SparseTensor]:
    return torch_sparse.matmul(left, right), torch_sparse.add(left, right), torch_sparse.mul(left, right)


@torch.jit.script
def normalised(mat: SparseTensor) -> SparseTensor:
    if not mat.has_value():
        mat = mat.fill_value(1.0, dtype=torch.float64)
    mat = torch_sparse.fill_diag(torch_sparse.remove_diag(mat), 1.0)
    scale = torch_sparse.sum(mat, dim=1).pow(-0.5)
    return torch_sparse.mul(torch_sparse.mul(mat, scale.view(-1, 1)), scale.view(1, -1))


@torch.jit.script
def numbers(row: Tensor, col: Tensor) -> tuple[list[int], int, list[int], Tensor, Tensor, Tensor]:
    mat = SparseTensor(row=row, col=col, sparse_sizes=(4, 6))
    held = mat.storage
    some = torch_sparse.masked_select_nnz(torch_sparse.set_diag(mat), torch.arange(row.numel() + 4) > 0, layout="coo")
    return (
        mat.sizes(),
        some.nnz(),
        [mat.size(0), mat.dim()],
        held.colptr(),
        held.rowcount(),
        mat.to_torch_sparse_csr_tensor().to_dense(),
    )


@pytest.mark.parametrize("valued", [True, False])
def test_products(valued):
    mat, x = matrix(valued), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    if valued:
        mat.requires_grad_()
    of = [x, *([mat.storage.value()] if valued else [])]
    found, expected = dense_products(mat, x), (torch_sparse.matmul(mat, x, "mean"), torch_sparse.matmul(mat.t(), x))
    for one, other in zip(found, expected):
        assert torch.equal(one, other)
        grads = (torch.autograd.grad(out.square().sum(), of) for out in (one, other))
        assert all(map(torch.equal, *grads))


def test_products_of_two_matrices_are_matrices_of_ours():
    mat = matrix()
    dense = mat.to_dense()
    for found, expected in zip(sparse_products(mat, mat), (dense @ dense, 2 * dense, dense * dense)):
        assert type(found) is SparseTensor and torch.equal(found.to_dense(), expected)
        assert torch.equal(found @ dense, expected @ dense)  # it goes on in Python


@pytest.mark.parametrize("valued", [True, False])
def test_normalised_as_graphs_are(valued):
    dense = matrix(valued).to_dense().double()
    dense.fill_diagonal_(1)
    scale = dense.sum(1).pow(-0.5)
    torch.testing.assert_close(normalised(matrix(valued)).to_dense(), scale[:, None] * dense * scale)


def test_what_a_matrix_is_asked_for():
    row, col = torch.tensor([2, 0, 2]), torch.tensor([5, 1, 0])
    sizes, some, rest, colptr, rowcount, dense = numbers(row, col)
    assert (sizes, some, rest) == ([4, 6], 6, [4, 2])
    assert colptr.tolist() == [0, 1, 2, 2, 2, 2, 3] and rowcount.tolist() == [1, 0, 2, 0]
    assert torch.equal(dense, SparseTensor(row=row, col=col, sparse_sizes=(4, 6)).to_dense())


def test_functions_of_tensors_are_saved_and_loaded():
    program = torch.jit.script(torch_sparse.spspmm)
    torch.jit.save(program, file := io.BytesIO())
    file.seek(0)
    row, col, value = matrix().coo()
    given = torch.stack([row, col]), value
    sizes = 5, 5, 5, False  # a program that was saved has no defaults
    for one, other in zip(torch.jit.load(file)(*given, *given, *sizes), torch_sparse.spspmm(*given, *given, *sizes)):
        assert torch.equal(one, other)


PROGRAM = """
import torch, gnn_sparse_backend as gsb
gsb.enable("torch_sparse", "pyg")
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.typing import SparseTensor

class Called(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, adj: SparseTensor) -> torch.Tensor:
        return self.layer(x, adj)

torch.manual_seed(0)
edges, x = torch.randint(0, 20, (2, 90)), torch.randn(20, 6)
adj = SparseTensor.from_edge_index(edges, sparse_sizes=(20, 20)).t()
for layer in (GCNConv(6, 4), SAGEConv(6, 4)):
    torch.testing.assert_close(torch.jit.script(Called(layer))(x, adj), layer(x, adj))
"""


@pytest.mark.slow
def test_layers_of_pyg(tmp_path):
    """A process of its own, in which PyG is imported after torch-sparse was enabled."""
    pytest.importorskip("torch_geometric")
    (tmp_path / "program.py").write_text(PROGRAM)  # whose text TorchScript reads
    done = subprocess.run([sys.executable, "-W", "ignore", tmp_path / "program.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
