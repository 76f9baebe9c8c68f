"""The ways that aggregations and edge maps can run: a class for each, which says whose plans it runs."""

from __future__ import annotations

from . import (  # noqa: F401  (with them strategies have their classes)
    edge_maps,
    one_pass,
    scattered,
    several_passes,
    slices,
)
from .aggregation import final_plan as final_plan
