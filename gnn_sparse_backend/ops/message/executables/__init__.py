"""The ways that aggregations and edge maps can run: a class for each, which says whose plans it runs."""

from __future__ import annotations

from ...core.executable import imports_for_gpus
from . import (  # noqa: F401  (with them strategies have their classes)
    edge_maps,
    one_pass,
    scattered,
    several_passes,
    slices,
)
from .aggregation import final_plan as final_plan


@imports_for_gpus
def _import_for_gpus() -> None:
    from . import blocks_cuda, buckets_cuda, edge_maps_cuda, parts_cuda, segments_cuda  # noqa: F401
