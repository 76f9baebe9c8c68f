"""Masks of sparse attention: which query may attend which key, kept by blocks. Public as ``gsb.masks``."""

from .block_masks import Planes, from_block_mask, to_block_mask
from .lengths import documents, pages
from .makers import band, blocks, butterfly, causal, from_dense, from_graph, full, heads, strided
from .mask import Mask
from .padding import Padding, padding

__all__ = [
    "Mask",
    "Padding",
    "Planes",
    "band",
    "blocks",
    "butterfly",
    "causal",
    "documents",
    "from_block_mask",
    "from_dense",
    "from_graph",
    "full",
    "heads",
    "padding",
    "pages",
    "strided",
    "to_block_mask",
]
