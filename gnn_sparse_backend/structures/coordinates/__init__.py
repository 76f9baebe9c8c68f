"""Sites of a sparse tensor: integer coordinates, the sites that a convolution reaches, and the pairs of its kernel."""

from .around import around, corners_of
from .errors import EqualSites, NoSuchBatch, OutsideGrid, TooManyCells
from .pairs import PairsFrom, kernel_map_between
from .sites import Coordinates, Generated, Occupied, Reached
from .union import united
from .window import Cross, Offsets, Window, per_axis

__all__ = [
    "Coordinates",
    "Cross",
    "EqualSites",
    "Generated",
    "NoSuchBatch",
    "Occupied",
    "Offsets",
    "OutsideGrid",
    "PairsFrom",
    "Reached",
    "TooManyCells",
    "Window",
    "around",
    "corners_of",
    "kernel_map_between",
    "per_axis",
    "united",
]
