"""Sparse formats, each inferred from a CSR structure with vectorised torch code on the structure's own device.

A format holds the coordinates of one matrix and the maps that lay edge values out for it (`SparseFormat`).
Padding never reads an operand: a padded slot of ELL and hyb has the coordinate -1, and BSR, SR-BCRS and DIA carry a
mask. Index types are those of the input, widened from int32 to int64 where an offset would not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..deferred import names_of

if TYPE_CHECKING:
    from .base import SparseFormat
    from .bsr import BsrFormat
    from .composed.decompose import decompose
    from .composed.decomposition import Decomposition
    from .composed.indices import Indices, NonZeros
    from .composed.registry import register, unregister
    from .coo import CooFormat
    from .csc import CscFormat
    from .csr import CsrFormat
    from .dbsr import DbsrFormat
    from .dia import DiaFormat
    from .ell import EllFormat
    from .hyb import HybBucket, HybFormat
    from .partitions.row_groups import balanced_row_groups, equal_row_groups
    from .sr_bcrs import SrBcrsFormat
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            ".base": "SparseFormat",
            ".bsr": "BsrFormat",
            ".composed.decompose": "decompose",
            ".composed.decomposition": "Decomposition",
            ".composed.indices": "Indices NonZeros",
            ".composed.registry": "register unregister",
            ".coo": "CooFormat",
            ".csc": "CscFormat",
            ".csr": "CsrFormat",
            ".dbsr": "DbsrFormat",
            ".dia": "DiaFormat",
            ".ell": "EllFormat",
            ".hyb": "HybBucket HybFormat",
            ".partitions.row_groups": "balanced_row_groups equal_row_groups",
            ".sr_bcrs": "SrBcrsFormat",
        },
    )

__all__ = [
    "BsrFormat",
    "CooFormat",
    "CscFormat",
    "CsrFormat",
    "DbsrFormat",
    "Decomposition",
    "DiaFormat",
    "EllFormat",
    "HybBucket",
    "HybFormat",
    "Indices",
    "NonZeros",
    "SparseFormat",
    "SrBcrsFormat",
    "balanced_row_groups",
    "decompose",
    "equal_row_groups",
    "register",
    "unregister",
]
