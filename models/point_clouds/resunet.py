"""ResUNet of FCGF (Choy, Park and Koltun, ICCV 2019), as it is published, on MinkowskiEngine's layers.

MinkowskiEngine is imported here: where it is not installed, ``gsb.enable("MinkowskiEngine")`` comes before the import
of this module. Names of parameters are those of the published checkpoints.
"""

from __future__ import annotations

import MinkowskiEngine as ME
import MinkowskiEngine.MinkowskiFunctional as MEF
from MinkowskiEngine.modules.resnet_block import BasicBlock

CONFIGURATIONS = {
    # channels on the way down, and on the way up from the finest level on
    "ResUNetBN2": ((32, 64, 128, 256), (32, 64, 64, 128)),
    "ResUNetBN2B": ((32, 64, 128, 256), (64, 64, 64, 64)),
    "ResUNetBN2C": ((32, 64, 128, 256), (64, 64, 64, 128)),
    "ResUNetBN2D": ((32, 64, 128, 256), (64, 64, 128, 128)),
}


class ResUNet(ME.MinkowskiNetwork):
    """A feature of unit length for each voxel.

    Args:
        configuration: a name of ``CONFIGURATIONS``.
        in_channels, out_channels: of the input and of the features.
        conv1_kernel_size: cells along each axis of the first kernel.
        bn_momentum: of the norms.
        width: what all channels between are multiplied by.
        D: number of axes.
    """

    def __init__(
        self,
        configuration: str = "ResUNetBN2C",
        in_channels: int = 1,
        out_channels: int = 32,
        conv1_kernel_size: int = 5,
        bn_momentum: float = 0.05,
        width: float = 1.0,
        D: int = 3,
    ) -> None:
        super().__init__(D)
        down, up = ([max(int(c * width), 1) for c in channels] for channels in CONFIGURATIONS[configuration])
        self.levels = len(down)
        before = in_channels
        for level, channels in enumerate(down, 1):
            size, stride = (conv1_kernel_size, 1) if level == 1 else (3, 2)
            self._add(
                "", level, ME.MinkowskiConvolution(before, channels, size, stride, dimension=D), channels, bn_momentum
            )
            before = channels
        for level in range(self.levels, 1, -1):
            channels = up[level - 1]
            conv = ME.MinkowskiConvolutionTranspose(before, channels, 3, 2, dimension=D)
            self._add("_tr", level, conv, channels, bn_momentum)
            before = channels + down[level - 2]
        self.conv1_tr = ME.MinkowskiConvolution(before, up[0], 1, dimension=D)
        self.final = ME.MinkowskiConvolution(up[0], out_channels, 1, bias=True, dimension=D)

    def _add(self, way: str, level: int, conv, channels: int, momentum: float) -> None:
        self.add_module(f"conv{level}{way}", conv)
        self.add_module(f"norm{level}{way}", ME.MinkowskiBatchNorm(channels, momentum=momentum))
        block = BasicBlock(channels, channels, bn_momentum=momentum, dimension=self.D)
        self.add_module(f"block{level}{way}", block)

    def _level(self, x, level: int, way: str = ""):
        for name in ("conv", "norm", "block"):
            x = getattr(self, f"{name}{level}{way}")(x)
        return x

    def forward(self, x):
        skipped = []
        for level in range(1, self.levels + 1):
            x = self._level(x, level)
            skipped.append(x)
            x = MEF.relu(x)
        for level in range(self.levels, 1, -1):
            x = ME.cat(MEF.relu(self._level(x, level, "_tr")), skipped[level - 2])
        x = self.final(MEF.relu(self.conv1_tr(x)))
        return MEF.normalize(x, dim=1)
