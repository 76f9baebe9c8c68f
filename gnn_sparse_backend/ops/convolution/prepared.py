"""What ``precompile`` and ``explain`` know of sparse convolutions, full or in groups of channels."""

from __future__ import annotations

from ...compiler.own_schedules import describes
from ...structures.kernel_map import KernelMap, RelGraphOf
from ..core.prepared import Kind, Prepared, Width, pair, prepares, structures
from ..relational.executables_cpu import content_of as content_of_relations
from .api import sparse_conv
from .decisions import content_of
from .explain import explain_convolution
from .operators import CONV
from .programs.spec import ConvSpec


def _name(kernel_map: KernelMap) -> str:
    outputs, inputs = kernel_map.shape
    return f"{outputs:,} x {inputs:,}, {kernel_map.num_pairs:,} pairs of {kernel_map.num_offsets:,} offsets"


def _shapes(kernel_map: KernelMap, width: Width) -> list[tuple[int, ...]]:
    c_in, c_out = pair(width)
    groups = width[2] if isinstance(width, tuple) and len(width) > 2 else 1
    return [(kernel_map.shape[1], c_in), (kernel_map.num_offsets, c_in // groups, c_out)]


def _fingerprints(kernel_map: KernelMap) -> tuple[str, ...]:
    """Fingerprints of the map and its transpose, and of the relational graphs whose products they may run by."""
    maps = kernel_map, kernel_map.transpose()
    return *map(content_of, maps), *(content_of_relations(each.derived(RelGraphOf())) for each in maps)


def _call(kernel_map: KernelMap, x, w):
    return sparse_conv(x, w, kernel_map, groups=x.shape[1] // w.shape[1])


structures(
    Kind(
        KernelMap,
        "a gsb.KernelMap",
        lambda kernel_map: kernel_map.num_pairs,
        _name,
        "sparse_conv",
        _fingerprints,
    ),
)
prepares(
    Prepared(
        "sparse_conv",
        CONV,
        KernelMap,
        ("C_in", "C_out"),
        "C for both",
        _shapes,
        _call,
        explain=explain_convolution,
        scheduled=("sparse_conv",),
    ),
    Prepared(
        "sparse_conv_groups",
        CONV,
        KernelMap,
        ("C_in", "C_out", "groups"),
        "",
        _shapes,
        _call,
        divided=True,
        explain=explain_convolution,
        scheduled=("sparse_conv",),
    ),
)


@describes(ConvSpec, "sparse_conv")
def _convolution(spec: ConvSpec) -> tuple[tuple[str, ...], str, int, str]:
    """Widths are known at a call; the kernel has those of a tile."""
    return ("sparse_conv",), spec.dtype, spec.tile, "sum"
