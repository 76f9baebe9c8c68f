"""MinkowskiEngine 0.5 on the layers of ``gnn_sparse_backend.nn``: what ``import MinkowskiEngine`` gives once it is
enabled.

===============  ======================================================================================
module           what it holds
===============  ======================================================================================
``tensor``       features at rows that a manager knows: ``sparse_tensor`` at sites, ``field`` at points
``manager``      sites by their keys (``store``), points (``points``), and the maps between them
``generator``    kernels: their cells, in the order of MinkowskiEngine's weights
``layers``       layers with MinkowskiEngine's parameters, counted by ``gnn_sparse_backend.status()``
``ops``          functions of several tensors, and dense tensors
``functional``   functions of PyTorch on features
``utils``        voxels of points, batches of samples
``modules``      blocks of residual networks
===============  ======================================================================================
"""

from ...deferred import names_of
from . import functional as MinkowskiFunctional
from . import modules, utils
from . import ops as MinkowskiOps
from .ops import _sum as sum

__version__ = "0.5.4"
_NAMES = {
    ".enums": (
        "BroadcastMode ConvolutionMode CoordinateMapType GPUMemoryAllocatorType MinkowskiAlgorithm PoolingMode "
        "RegionType SparseTensorOperationMode SparseTensorQuantizationMode is_cuda_available"
    ),
    ".field": "TensorField",
    ".generator": "KernelGenerator KernelRegion convert_to_int_list convert_to_int_tensor get_kernel_volume",
    ".key": "CoordinateMapKey",
    ".layers.base": "MinkowskiModuleBase",
    ".layers.broadcast": (
        "MinkowskiBroadcast MinkowskiBroadcastAddition MinkowskiBroadcastConcatenation MinkowskiBroadcastMultiplication"
    ),
    ".layers.convolution": (
        "MinkowskiChannelwiseConvolution MinkowskiConvolution MinkowskiConvolutionTranspose "
        "MinkowskiGenerativeConvolutionTranspose"
    ),
    ".layers.network": "MinkowskiNetwork",
    ".layers.normalization": (
        "MinkowskiBatchNorm MinkowskiInstanceNorm MinkowskiStableInstanceNorm MinkowskiSyncBatchNorm"
    ),
    ".layers.pointwise": (
        "MinkowskiAlphaDropout MinkowskiCELU MinkowskiDropout MinkowskiELU MinkowskiGELU MinkowskiHardshrink "
        "MinkowskiHardsigmoid MinkowskiHardswish MinkowskiHardtanh MinkowskiLeakyReLU MinkowskiLinear "
        "MinkowskiLogSigmoid MinkowskiLogSoftmax MinkowskiPReLU MinkowskiRReLU MinkowskiReLU MinkowskiReLU6 "
        "MinkowskiSELU MinkowskiSiLU MinkowskiSigmoid MinkowskiSinusoidal MinkowskiSoftmax MinkowskiSoftmin "
        "MinkowskiSoftplus MinkowskiSoftshrink MinkowskiSoftsign MinkowskiTanh MinkowskiTanhshrink "
        "MinkowskiThreshold"
    ),
    ".layers.pooling": (
        "MinkowskiAvgPooling MinkowskiGlobalAvgPooling MinkowskiGlobalMaxPooling MinkowskiGlobalPooling "
        "MinkowskiGlobalSumPooling MinkowskiMaxPooling MinkowskiPoolingTranspose MinkowskiSumPooling"
    ),
    ".layers.sites": "MinkowskiInterpolation MinkowskiPruning MinkowskiUnion",
    ".manager": "CoordinateManager",
    ".modes": (
        "clear_global_coordinate_manager global_coordinate_manager set_global_coordinate_manager "
        "set_sparse_tensor_operation_mode sparse_tensor_operation_mode"
    ),
    ".ops": (
        "MinkowskiStackCat MinkowskiStackMean MinkowskiStackSum MinkowskiStackVar MinkowskiToDenseTensor "
        "MinkowskiToFeature MinkowskiToSparseTensor cat dense_coordinates mean to_sparse to_sparse_all var"
    ),
    ".sparse_tensor": "SparseTensor",
    ".tensor": "COORDINATE_KEY_DIFFERENT_ERROR COORDINATE_MANAGER_DIFFERENT_ERROR Tensor",
}
MODULES = {
    "MinkowskiBroadcast": "layers.broadcast",
    "MinkowskiChannelwiseConvolution": "layers.convolution",
    "MinkowskiCommon": "",
    "MinkowskiConvolution": "layers.convolution",
    "MinkowskiCoordinateManager": "manager",
    "MinkowskiEngineBackend": "",
    "MinkowskiEngineBackend._C": "",
    "MinkowskiFunctional": "functional",
    "MinkowskiInterpolation": "layers.sites",
    "MinkowskiKernelGenerator": "generator",
    "MinkowskiNetwork": "layers.network",
    "MinkowskiNonlinearity": "layers.pointwise",
    "MinkowskiNormalization": "layers.normalization",
    "MinkowskiOps": "ops",
    "MinkowskiPooling": "layers.pooling",
    "MinkowskiPruning": "layers.sites",
    "MinkowskiSparseTensor": "sparse_tensor",
    "MinkowskiTensor": "",
    "MinkowskiTensorField": "field",
    "MinkowskiUnion": "layers.sites",
}
"""Our modules, by MinkowskiEngine's names."""

__getattr__, __dir__ = names_of(__name__, _NAMES)
__all__ = ["MinkowskiFunctional", "MinkowskiOps", "modules", "sum", "utils"]
__all__ += " ".join(_NAMES.values()).split()
