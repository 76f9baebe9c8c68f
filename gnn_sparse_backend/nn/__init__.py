"""Layers over sparse tensors (convolution, pooling, and what stands between them), and sparse attention."""

from . import convert
from .attention import SparseAttention
from .batches import batch, cat, from_dense, to_dense, unbatch
from .convolution import SparseConv, SparseConvTranspose, SparseInverseConv, SubMConv
from .pointwise import (
    ELU,
    GELU,
    BatchNorm,
    Dropout,
    GroupNorm,
    Identity,
    LayerNorm,
    LeakyReLU,
    Linear,
    PReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Tanh,
)
from .pooling import GlobalAvgPool, GlobalMaxPool, GlobalSumPool, SparseAvgPool, SparseMaxPool, SparseSumPool
from .tensor import SparseTensor

__all__ = [
    "ELU",
    "GELU",
    "BatchNorm",
    "Dropout",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GlobalSumPool",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "PReLU",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "SparseAttention",
    "SparseAvgPool",
    "SparseConv",
    "SparseConvTranspose",
    "SparseInverseConv",
    "SparseMaxPool",
    "SparseSumPool",
    "SparseTensor",
    "SubMConv",
    "Tanh",
    "batch",
    "cat",
    "convert",
    "from_dense",
    "to_dense",
    "unbatch",
]
