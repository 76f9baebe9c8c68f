"""Layers over sparse tensors (convolution, pooling, and what stands between them), sparse weights and attention."""

from ..structures.coordinates import Cross, Offsets
from . import convert
from .attention import SparseAttention
from .sparse_linear import SparseLinear
from .sparsify import Sparsified, densify, sparsify
from .voxels.batches import batch, cat, from_dense, to_dense, unbatch
from .voxels.convolution import SparseConv, SparseConvTranspose, SparseInverseConv, SubMConv
from .voxels.pointwise import (
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
from .voxels.pooling import GlobalAvgPool, GlobalMaxPool, GlobalSumPool, SparseAvgPool, SparseMaxPool, SparseSumPool
from .voxels.select import select
from .voxels.tensor import SparseTensor
from .voxels.union import union

__all__ = [
    "ELU",
    "GELU",
    "BatchNorm",
    "Cross",
    "Dropout",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GlobalSumPool",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "Offsets",
    "PReLU",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "SparseAttention",
    "SparseAvgPool",
    "SparseConv",
    "SparseConvTranspose",
    "SparseInverseConv",
    "SparseLinear",
    "SparseMaxPool",
    "SparseSumPool",
    "SparseTensor",
    "Sparsified",
    "SubMConv",
    "Tanh",
    "batch",
    "cat",
    "convert",
    "densify",
    "from_dense",
    "select",
    "sparsify",
    "to_dense",
    "unbatch",
    "union",
]
