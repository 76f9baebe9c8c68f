"""Sparse tensor algebra: an expression and the formats of its tensors are said apart, and a kernel comes out.

from gnn_sparse_backend import tensor as st

a = st.array(matrix, "csr")
y = st.evaluate("y[i] = a[i,j] * x[j]", a=a, x=x)
"""

from .array import Array, array
from .choice import where
from .errors import CoIterationError, FormatError, NotationError, ScheduleError
from .evaluation import Kernel, compile, einsum, evaluate, statement
from .files.matrix_market import load_mtx, save_mtx
from .files.npz import load_npz, save_npz
from .joining import concatenate, stack
from .products import dot, matmul, tensordot
from .scheduling.statement import Statement
from .storage.format import Format, bsr, coo, csc, csf, csr, dcsr, dense, dia, ell

__all__ = [
    "Array",
    "CoIterationError",
    "Format",
    "FormatError",
    "Kernel",
    "NotationError",
    "ScheduleError",
    "Statement",
    "array",
    "bsr",
    "compile",
    "concatenate",
    "coo",
    "csc",
    "csf",
    "csr",
    "dcsr",
    "dense",
    "dia",
    "dot",
    "einsum",
    "ell",
    "evaluate",
    "load_mtx",
    "load_npz",
    "matmul",
    "save_mtx",
    "save_npz",
    "stack",
    "statement",
    "tensordot",
    "where",
]
