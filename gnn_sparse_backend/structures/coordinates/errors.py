"""What is wrong with sites, each an error of its own: who asks for sites of somebody else tells them apart."""

from __future__ import annotations


class EqualSites(ValueError):
    """Two rows are equal."""


class OutsideGrid(ValueError):
    """A coordinate is not within the sizes of the grid."""


class NoSuchBatch(ValueError):
    """A batch is negative, or not below the number of batches."""


class TooManyCells(ValueError):
    """The box of all sites has more cells than 64-bit keys can number."""
