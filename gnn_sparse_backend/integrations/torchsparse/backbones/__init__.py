"""Networks of torchsparse, with the names of their parameters."""

from .resnet import SparseResNet21D
from .unet import SparseResUNet42

__all__ = ["SparseResNet21D", "SparseResUNet42"]
