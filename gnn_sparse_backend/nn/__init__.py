"""Layers over sparse tensors (convolution, pooling, and what stands between them), sparse weights and attention."""

from ..structures.coordinates import Cross, Offsets
from . import convert
from .attention import SparseAttention
from .sparse_linear import SparseLinear
from .sparsify import Sparsified, densify, sparsify
from .voxels.batches import batch, cat, from_dense, to_dense, unbatch
from .voxels.broadcast import broadcast
from .voxels.convolution import SparseConv, SparseConvTranspose, SparseInverseConv, SubMConv
from .voxels.interpolation import blend, interpolate
from .voxels.norms import GroupNorm, InstanceNorm, SyncBatchNorm
from .voxels.pointwise import (
    ELU,
    GELU,
    BatchNorm,
    Dropout,
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
from .voxels.pooling import (
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalSumPool,
    SparseAvgPool,
    SparseMaxPool,
    SparsePoolTranspose,
    SparseSumPool,
)
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
    "InstanceNorm",
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
    "SparsePoolTranspose",
    "SparseSumPool",
    "SparseTensor",
    "Sparsified",
    "SubMConv",
    "SyncBatchNorm",
    "Tanh",
    "batch",
    "blend",
    "broadcast",
    "cat",
    "convert",
    "densify",
    "from_dense",
    "interpolate",
    "select",
    "sparsify",
    "to_dense",
    "unbatch",
    "union",
]
