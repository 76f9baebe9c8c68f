"""Dropouts of compiled programs: those of no structure, which count their calls as those of eager programs."""

from __future__ import annotations

from ...ops.core.library import register_for
from ...ops.core.traced import StructureKind, Traced
from ...ops.random.dropout import dropped
from ...ops.random.masked import masked
from ..core.counters import ours


def _count(arguments: tuple, operands) -> None:
    (counted,) = arguments
    if counted:
        ours("torch", counted)


COUNTED = StructureKind(
    ("str counted",),
    lambda structure: Traced(("dropout",), kind=COUNTED),
    _count,
    sizes=lambda arguments, operands: ("",),  # calls are counted once, in the forward pass
    name="_counted",
)
"""No structure. counted: the operator of PyTorch that a call is counted for; "" is not counted."""

for _operator in (dropped, masked):
    register_for(_operator, COUNTED)
