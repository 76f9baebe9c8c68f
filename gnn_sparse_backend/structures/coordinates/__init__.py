"""Sites of a sparse tensor: integer coordinates, the sites that a convolution reaches, and the pairs of its kernel."""

from .errors import EqualSites, NoSuchBatch, OutsideGrid, TooManyCells
from .pairs import PairsFrom, kernel_map_between
from .sites import Coordinates, Generated, Occupied, Reached
from .window import Window, per_axis

__all__ = [
    "Coordinates",
    "EqualSites",
    "Generated",
    "NoSuchBatch",
    "Occupied",
    "OutsideGrid",
    "PairsFrom",
    "Reached",
    "TooManyCells",
    "Window",
    "kernel_map_between",
    "per_axis",
]
