"""What layers compute, and hashes, voxels and points."""

from ...absent import absent
from ..utils.kernel import get_kernel_offsets
from . import conv_config
from .conv import conv3d
from .conv_config import (
    ConvMode,
    Dataflow,
    clear_global_conv_config,
    get_conv_mode,
    get_default_conv_config,
    get_downsample_mode,
    get_global_conv_config,
    get_kmap_mode,
    set_conv_mode,
    set_downsample_mode,
    set_global_conv_config,
    set_kmap_mode,
)
from .crop import spcrop
from .downsample import spdownsample, spupsample_generative
from .hashes import sphash, sphashquery
from .pointwise import leaky_relu, relu, silu
from .pooling import global_avg_pool, global_max_pool
from .voxels import calc_ti_weights, spcount, spdevoxelize, spvoxelize

_MAPS = "maps are found by layers; gnn_sparse_backend.nn.SparseTensor(...).kernel_map gives one"
build_kernel_map = absent("build_kernel_map", _MAPS)
transpose_kernel_map = absent("transpose_kernel_map", _MAPS)
convert_transposed_out_in_map = absent("convert_transposed_out_in_map", _MAPS)

__all__ = [
    "ConvMode",
    "Dataflow",
    "build_kernel_map",
    "calc_ti_weights",
    "clear_global_conv_config",
    "conv3d",
    "conv_config",
    "convert_transposed_out_in_map",
    "get_conv_mode",
    "get_default_conv_config",
    "get_downsample_mode",
    "get_global_conv_config",
    "get_kernel_offsets",
    "get_kmap_mode",
    "global_avg_pool",
    "global_max_pool",
    "leaky_relu",
    "relu",
    "set_conv_mode",
    "set_downsample_mode",
    "set_global_conv_config",
    "set_kmap_mode",
    "silu",
    "spcount",
    "spcrop",
    "spdevoxelize",
    "spdownsample",
    "sphash",
    "sphashquery",
    "spupsample_generative",
    "spvoxelize",
    "transpose_kernel_map",
]
