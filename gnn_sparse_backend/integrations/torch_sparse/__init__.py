"""The names of torch-sparse over our kernels, given for ``import torch_sparse`` by ``enable("torch_sparse")``.

=================  ======================================================================================
module             what it holds
=================  ======================================================================================
``storage``        ``SparseStorage``: entries, and what is derived of them
``tensor``         ``SparseTensor``
``conversions``    from and to dense matrices and those of PyTorch and SciPy
``selection``      rows, columns, entries, diagonals, transpose
``arithmetic``     sums and products entry by entry, reductions
``products``       products of matrices
``gustavson``      products of two sparse matrices
``joining``        ``cat``
``sampling``       samples, subgraphs, walks, parts
``relations``      graphs of several types, as samplers take them
``matrices``       functions of an index and values
``operators``      ``torch.ops.torch_sparse``
``scripted``       classes and functions for TorchScript
``utils``          sorts and pointers
``testing``        what tests ask for
=================  ======================================================================================

Calls are counted by the names of the functions.
"""

from . import operators, scripted, testing, utils
from .arithmetic import add, add_, add_nnz, add_nnz_, max, mean, min, mul, mul_, mul_nnz, mul_nnz_, sum
from .joining import cat
from .matrices import (
    coalesce,
    eye,
    from_scipy,
    from_torch_sparse,
    spadd,
    spmm,
    spspmm,
    to_scipy,
    to_torch_sparse,
    transpose,
)
from .products import matmul
from .sampling import partition, random_walk, reverse_cuthill_mckee, saint_subgraph, sample, sample_adj
from .selection import (
    __narrow_diag__,
    fill_diag,
    get_diag,
    index_select,
    index_select_nnz,
    masked_select,
    masked_select_nnz,
    narrow,
    permute,
    remove_diag,
    select,
    set_diag,
    t,
)
from .storage import SparseStorage
from .tensor import SparseTensor

scripted.mark()

__version__ = "0.6.18"

MODULES = {
    "add": "arithmetic",
    "bandwidth": "sampling",
    "cat": "joining",
    "coalesce": "matrices",
    "convert": "matrices",
    "diag": "selection",
    "eye": "matrices",
    "index_select": "selection",
    "masked_select": "selection",
    "matmul": "products",
    "metis": "sampling",
    "mul": "arithmetic",
    "narrow": "selection",
    "permute": "selection",
    "reduce": "arithmetic",
    "rw": "sampling",
    "saint": "sampling",
    "sample": "sampling",
    "select": "selection",
    "spadd": "matrices",
    "spmm": "matrices",
    "spspmm": "matrices",
    "transpose": "matrices",
}
"""Modules that torch-sparse has by other names."""

__all__ = [
    "MODULES",
    "SparseStorage",
    "SparseTensor",
    "__narrow_diag__",
    "__version__",
    "add",
    "add_",
    "add_nnz",
    "add_nnz_",
    "cat",
    "coalesce",
    "eye",
    "fill_diag",
    "from_scipy",
    "from_torch_sparse",
    "get_diag",
    "index_select",
    "index_select_nnz",
    "masked_select",
    "masked_select_nnz",
    "matmul",
    "max",
    "mean",
    "min",
    "mul",
    "mul_",
    "mul_nnz",
    "mul_nnz_",
    "narrow",
    "operators",
    "partition",
    "permute",
    "random_walk",
    "remove_diag",
    "reverse_cuthill_mckee",
    "saint_subgraph",
    "sample",
    "sample_adj",
    "select",
    "set_diag",
    "spadd",
    "spmm",
    "spspmm",
    "sum",
    "t",
    "testing",
    "to_scipy",
    "to_torch_sparse",
    "transpose",
    "utils",
]
