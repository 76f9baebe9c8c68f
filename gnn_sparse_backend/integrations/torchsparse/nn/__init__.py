"""Layers."""

from ..absent import absent
from . import functional, utils
from .convolution import Conv3d
from .norms import BatchNorm, GroupNorm, InstanceNorm
from .pointwise import LeakyReLU, ReLU, SiLU
from .pooling import GlobalAvgPool, GlobalMaxPool, SparseCrop

_BEV = "x.dense() gives (batches, X, Y, Z, C), of which torch.nn.Linear or a sum makes a bird's-eye view"
ToBEVConvolution = absent("ToBEVConvolution", _BEV)
ToBEVHeightCompression = absent("ToBEVHeightCompression", _BEV)
ToBEVReduction = absent("ToBEVReduction", _BEV)
ToDenseBEVConvolution = absent("ToDenseBEVConvolution", _BEV)

__all__ = [
    "BatchNorm",
    "Conv3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "InstanceNorm",
    "LeakyReLU",
    "ReLU",
    "SiLU",
    "SparseCrop",
    "ToBEVConvolution",
    "ToBEVHeightCompression",
    "ToBEVReduction",
    "ToDenseBEVConvolution",
    "functional",
    "utils",
]
