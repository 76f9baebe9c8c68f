"""Sites of a sparse tensor: integer coordinates, the sites that a convolution reaches, and the pairs of its kernel."""

from .pairs import PairsFrom, kernel_map_between
from .sites import Coordinates, Generated, Occupied, Reached
from .union import united
from .window import Window, per_axis

__all__ = [
    "Coordinates",
    "Generated",
    "Occupied",
    "PairsFrom",
    "Reached",
    "Window",
    "kernel_map_between",
    "per_axis",
    "united",
]
