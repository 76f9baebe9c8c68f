"""Stage I to stage I: each transformation takes a program and returns a new one, or refuses with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deferred import names_of

if TYPE_CHECKING:
    from .compact import compact_parameters
    from .decompose import decompose_format, remove_copies, split_copies, split_parts
    from .dense_axes.hoist import hoist_axis
    from .dense_axes.lanes import reduce_in_lanes
    from .dense_axes.share import share_axis, share_sum
    from .dense_axes.tile import tile_axis
    from .fuse import sparse_fuse
    from .group import group_axis
    from .reorder import sparse_reorder
    from .rewrite_rule import FormatRewriteRule
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            ".compact": "compact_parameters",
            ".decompose": "decompose_format remove_copies split_copies split_parts",
            ".dense_axes.hoist": "hoist_axis",
            ".dense_axes.lanes": "reduce_in_lanes",
            ".dense_axes.share": "share_axis share_sum",
            ".dense_axes.tile": "tile_axis",
            ".fuse": "sparse_fuse",
            ".group": "group_axis",
            ".reorder": "sparse_reorder",
            ".rewrite_rule": "FormatRewriteRule",
        },
    )

__all__ = [
    "FormatRewriteRule",
    "compact_parameters",
    "decompose_format",
    "group_axis",
    "hoist_axis",
    "reduce_in_lanes",
    "remove_copies",
    "share_axis",
    "share_sum",
    "sparse_fuse",
    "sparse_reorder",
    "split_copies",
    "split_parts",
    "tile_axis",
]
