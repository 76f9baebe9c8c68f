"""Words of MinkowskiEngine's arguments, with its numbers."""

from __future__ import annotations

from enum import Enum, IntEnum

import torch


class RegionType(IntEnum):
    """Which cells around a site a kernel has."""

    HYPER_CUBE = 0
    HYPER_CROSS = 1
    CUSTOM = 2


class MinkowskiAlgorithm(IntEnum):
    """Accepted where MinkowskiEngine takes it: how kernels run is planned here by what they cost."""

    DEFAULT = 0
    MEMORY_EFFICIENT = 1
    SPEED_OPTIMIZED = 2


class ConvolutionMode(IntEnum):
    """Accepted where MinkowskiEngine takes it: how kernels run is planned here by what they cost."""

    DEFAULT = 0
    DIRECT_GEMM = 1
    COPY_GEMM = 2


class GPUMemoryAllocatorType(IntEnum):
    """Accepted where MinkowskiEngine takes it: memory is PyTorch's."""

    PYTORCH = 0
    CUDA = 1


class CoordinateMapType(IntEnum):
    """Accepted where MinkowskiEngine takes it: sites are on the device of the coordinates."""

    CPU = 0
    CUDA = 1


class PoolingMode(IntEnum):
    """What a pooling layer computes."""

    LOCAL_SUM_POOLING = 0
    LOCAL_AVG_POOLING = 1
    LOCAL_MAX_POOLING = 2
    GLOBAL_SUM_POOLING_DEFAULT = 3
    GLOBAL_AVG_POOLING_DEFAULT = 4
    GLOBAL_MAX_POOLING_DEFAULT = 5
    GLOBAL_SUM_POOLING_KERNEL = 6
    GLOBAL_AVG_POOLING_KERNEL = 7
    GLOBAL_MAX_POOLING_KERNEL = 8
    GLOBAL_SUM_POOLING_PYTORCH_INDEX = 9
    GLOBAL_AVG_POOLING_PYTORCH_INDEX = 10
    GLOBAL_MAX_POOLING_PYTORCH_INDEX = 11

    @property
    def reduction(self) -> str:
        """``"sum"``, ``"mean"`` or ``"max"``."""
        word = self.name.split("_")[1]
        return {"SUM": "sum", "AVG": "mean", "MAX": "max"}[word]


class BroadcastMode(IntEnum):
    """What is done with a site and the features of its batch; the first is spelt so by MinkowskiEngine."""

    ELEMENTWISE_ADDITON = 0
    ELEMENTWISE_MULTIPLICATION = 1


class SparseTensorOperationMode(Enum):
    """Whether new tensors have a manager of their own, or the global one."""

    SEPARATE_COORDINATE_MANAGER = 0
    SHARE_COORDINATE_MANAGER = 1


class SparseTensorQuantizationMode(Enum):
    """What becomes of features whose coordinates are those of one site."""

    RANDOM_SUBSAMPLE = 0
    UNWEIGHTED_AVERAGE = 1
    UNWEIGHTED_SUM = 2
    NO_QUANTIZATION = 3
    MAX_POOL = 4
    SPLAT_LINEAR_INTERPOLATION = 5


def is_cuda_available() -> bool:
    """Whether PyTorch has a GPU."""
    return torch.cuda.is_available()
