"""What PyG asks of torch-sparse's matrices, in PyTorch, where torch-sparse itself is not installed."""

from __future__ import annotations

import sys
from types import ModuleType

import torch
import torch_geometric
from torch import Tensor


class SparseTensor:
    """A matrix whose entries are in the order of rows, with a number each or none."""

    def __init__(self, row, col, value=None, sparse_sizes=None):
        order = (row * sparse_sizes[1] + col).argsort(stable=True)
        self.row, self.col = row[order], col[order]
        self.value, self.sizes = None if value is None else value[order], sparse_sizes
        self.rowptr = torch.cat([row.new_zeros(1), row.bincount(minlength=sparse_sizes[0]).cumsum(0)])

    def sparse_sizes(self) -> tuple[int, int]:
        return self.sizes

    def sparse_size(self, dim: int) -> int:
        return self.sizes[dim]

    size = sparse_size

    def nnz(self) -> int:
        return self.col.numel()

    def csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.rowptr, self.col, self.value

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.row, self.col, self.value

    def is_cuda(self) -> bool:
        return False

    def requires_grad(self) -> bool:
        return self.value is not None and self.value.requires_grad

    def set_value(self, value: Tensor | None, layout: str | None = None) -> SparseTensor:
        return SparseTensor(self.row, self.col, value, self.sizes)

    def spmm(self, other: Tensor, reduce: str = "sum") -> Tensor:
        return spmm(self, other, reduce)

    def __matmul__(self, other: Tensor) -> Tensor:
        return matmul(self, other)

    def to_torch_sparse_csr_tensor(self, dtype: torch.dtype | None = None) -> Tensor:
        value = torch.ones(self.nnz(), dtype=dtype) if self.value is None else self.value
        return torch.sparse_csr_tensor(self.rowptr, self.col, value, self.sizes)


def matmul(src: SparseTensor, other, reduce: str = "sum"):
    if isinstance(other, SparseTensor):
        return "the product of two sparse matrices"
    return spmm(src, other, reduce)


def spmm(src: SparseTensor, other: Tensor, reduce: str = "sum") -> Tensor:
    """The product, row by row. Of equal products the first has the gradient of a maximum."""
    products = other[src.col]
    if src.value is not None:
        products = products * src.value.to(other.dtype).view(-1, 1)
    zeros = other.new_zeros(1, *other.shape[1:])
    reduces = {"sum": lambda x: x.sum(0), "add": lambda x: x.sum(0), "mean": lambda x: x.mean(0)}
    reduces |= {"max": lambda x: x.max(0).values, "min": lambda x: x.min(0).values}
    rows = products.split(src.rowptr.diff().tolist())
    return torch.stack([(reduces[reduce](x if len(x) else zeros)) for x in rows])


def install(monkeypatch) -> ModuleType:
    """``torch_sparse``, or what stands for it everywhere in PyG."""
    if torch_geometric.typing.WITH_TORCH_SPARSE:
        return sys.modules["torch_sparse"]
    made = ModuleType("torch_sparse")
    made.SparseTensor, made.matmul = SparseTensor, matmul
    monkeypatch.setitem(sys.modules, "torch_sparse", made)
    stubs = {"SparseTensor": torch_geometric.typing.SparseTensor, "torch_sparse": torch_geometric.typing.torch_sparse}
    for module in list(sys.modules.values()):
        for name, stub in stubs.items():
            if module is not made and getattr(module, "__dict__", {}).get(name) is stub:
                monkeypatch.setattr(module, name, getattr(made, name, made))
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", True)
    return made
