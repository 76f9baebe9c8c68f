"""``SparseResUNet42``: residual stages down and up again, with what was on the way down joined on the way up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import nn

from ..operators import cat
from ..tensor import SparseTensor
from .blocks import SparseConvBlock, SparseConvTransposeBlock, SparseResBlock

__all__ = ["SparseResUNet42"]


class SparseResUNet(nn.Module):
    """A stem of two convolutions, stages that halve the resolution, and as many that double it again.

    Args:
        stem_channels, encoder_channels, decoder_channels: widths, of as many stages down as up.
        in_channels: of the input.
        width_multiplier: of all other channels.

    ``forward`` gives the tensors before the first stage, behind each stage down, and behind each stage up.
    """

    def __init__(
        self,
        stem_channels: int,
        encoder_channels: Sequence[int],
        decoder_channels: Sequence[int],
        *,
        in_channels: int = 4,
        width_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        if len(encoder_channels) != len(decoder_channels):
            raise ValueError(f"as many stages go up as down, got {encoder_channels} and {decoder_channels}")
        self.stem_channels, self.in_channels, self.width_multiplier = stem_channels, in_channels, width_multiplier
        self.encoder_channels, self.decoder_channels = encoder_channels, decoder_channels
        stem, *widths = (int(width_multiplier * c) for c in (stem_channels, *encoder_channels, *decoder_channels))
        depth = len(encoder_channels)
        down, up = [stem, *widths[:depth]], widths[depth:]
        self.stem = nn.Sequential(*SparseConvBlock(in_channels, stem, 3), *SparseConvBlock(stem, stem, 3))
        self.encoders = nn.ModuleList(
            nn.Sequential(SparseConvBlock(c, c, 2, 2), SparseResBlock(c, wide, 3), SparseResBlock(wide, wide, 3))
            for c, wide in itertools.pairwise(down)
        )
        self.decoders = nn.ModuleList()
        for c, wide, joined in zip([down[-1], *up], up, down[-2::-1]):
            fuse = nn.Sequential(SparseResBlock(wide + joined, wide, 3), SparseResBlock(wide, wide, 3))
            self.decoders.append(nn.ModuleDict({"upsample": SparseConvTransposeBlock(c, wide, 2, 2), "fuse": fuse}))

    def forward(self, x: SparseTensor) -> list[SparseTensor]:
        finer = [self.stem(x)]
        for stage in self.encoders:
            finer.append(stage(finer[-1]))
        found = list(finer)
        y = finer.pop()
        for stage in self.decoders:
            y = stage["fuse"](cat([stage["upsample"](y), finer.pop()]))
            found.append(y)
        return found


class SparseResUNet42(SparseResUNet):
    """42 layers in four stages down and four up. Args: as of ``SparseResUNet``, without widths."""

    def __init__(self, *, in_channels: int = 4, width_multiplier: float = 1.0) -> None:
        super().__init__(
            32, (32, 64, 128, 256), (256, 128, 96, 96), in_channels=in_channels, width_multiplier=width_multiplier
        )
