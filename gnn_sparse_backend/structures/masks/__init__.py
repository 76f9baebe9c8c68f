"""Masks of sparse attention: which query may attend which key, kept by blocks. Public as ``gsb.masks``."""

from .makers import band, blocks, butterfly, causal, from_dense, from_graph, full, heads, strided
from .mask import Mask
from .padding import Padding, padding

__all__ = [
    "Mask",
    "Padding",
    "band",
    "blocks",
    "butterfly",
    "causal",
    "from_dense",
    "from_graph",
    "full",
    "heads",
    "padding",
    "strided",
]
