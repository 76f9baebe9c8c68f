"""Operators on PyTorch's tensors: ``core``, what all of them stand on, and a room for each family.

A family has its public functions (``api.py`` or a module each), its operators (``operators.py``), what they run by
(``executables*``, ``schedules_*``, ``programs/``), and what ``precompile`` and ``explain`` know of it
(``prepared.py``). docs/architecture.md says what lives where.
"""

FAMILIES = ("message", "attention", "relational", "grouped", "convolution", "masked", "composed")
"""The rooms, in the order in which lists name their operators."""
LATE = {
    "gpu": (
        "message.executables.blocks_cuda",
        "message.executables.buckets_cuda",
        "message.executables.edge_maps_cuda",
        "message.executables.parts_cuda",
        "message.executables.segments_cuda",
        "message.reductions.recurrence_cuda",
        "attention.executables_cuda",
    ),
    "formats": ("composed.aggregation",),
}
"""Modules with executables that few processes need, by ``Plan.late``. They are imported with the first such plan."""
