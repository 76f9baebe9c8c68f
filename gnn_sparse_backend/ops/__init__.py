"""Operators on PyTorch's tensors: ``core``, what all of them stand on, and a room for each family.

A family has its public functions (``api.py`` or a module each), its operators (``operators.py``), what they run by
(``executables*``, ``schedules_*``, ``programs/``), and what ``precompile`` and ``explain`` know of it
(``prepared.py``). docs/architecture.md says what lives where.
"""

FAMILIES = ("message", "attention", "relational", "grouped", "convolution", "masked", "composed")
"""The rooms, in the order in which lists name their operators."""
