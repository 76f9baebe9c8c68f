"""Calls with operands that are stored as those of the last call: nothing but values is looked at anew."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

from ...frozen import dataclass
from ..storage.stored import Stored
from ..storage.structure import Structure
from ..storage.values import argument, to_dtype
from .assembled.assembly import VALUES
from .execution import Plan, arguments, example, result_of, result_structure, values_shape


class Call:
    """The arguments of a kernel for operands of these structures and types, without the values."""

    def __init__(self, plan: Plan, operands: Mapping[str, Stored], sizes: Mapping[str, int]) -> None:
        self.plan = plan
        # index arrays are not kept alive: without them nothing fits
        gone = partial(_emptied, weakref.ref(self))
        self.known = {name: _Known.of(stored, gone) for name, stored in operands.items()}
        self.structure = result_structure(plan, operands, sizes)
        self.example = example(plan, operands)
        out = result_of(plan, self.example, self.structure.positions).reshape(values_shape(plan, self.structure))
        self.arguments = arguments(plan, plan.written, operands, sizes, {VALUES: out})
        names = plan.written.program.parameter_names
        buffers = plan.written.buffers
        # where the values of which operand go, in which shape; "" is the result
        self.slots = [
            (at, buffers[name], tuple(self.arguments[at].shape)) for at, name in enumerate(names) if name in buffers
        ]
        for at, _, _ in self.slots:
            self.arguments[at] = None

    def fits(self, operands: Mapping[str, Stored]) -> bool:
        """Whether these are stored as those that it was made for."""
        return operands.keys() == self.known.keys() and all(
            known.is_like(operands[name]) for name, known in self.known.items()
        )

    def run(self, operands: Mapping[str, Stored]) -> Stored:
        out = result_of(self.plan, self.example, self.structure.positions)
        given = list(self.arguments)
        for at, name, shape in self.slots:
            given[at] = (argument(operands[name].values) if name else out).reshape(shape)
        self.plan.kernel(*given)
        return Stored(self.structure, to_dtype(out, self.plan.dtype))


def _emptied(call: weakref.ref[Call], structure: object) -> None:
    """Let go of the arrays of a call, one of whose structures has gone."""
    found = call()
    if found is not None:  # another structure of it may have gone before
        found.__dict__.pop("arguments", None)
        found.__dict__.pop("structure", None)


@dataclasses.dataclass
class Last:
    """The call of a plan that was made last; none at first."""

    call: Call | None = None

    def found(self, operands: Mapping[str, Stored]) -> Call | None:
        """The call, if it fits these operands."""
        return self.call if self.call is not None and self.call.fits(operands) else None


@dataclass(frozen=True)
class _Known:
    """How an operand was stored. A structure is the same only as an object, so that no index is compared."""

    structure: Any
    shape: tuple[int, ...]
    is_dense: bool
    format: Any
    kind: type
    dtype: Any = field(compare=False)

    @classmethod
    def of(cls, stored: Stored, gone: Callable[[object], None]) -> _Known:
        """gone: called when what is sparse is stored no more; of dense operands others of their shape will do."""
        values, structure = stored.values, stored.structure
        reference = weakref.ref(structure, None if structure.format.is_dense else gone)
        return cls(reference, structure.shape, structure.format.is_dense, structure.format, type(values), values.dtype)

    def is_like(self, stored: Stored) -> bool:
        structure: Structure = stored.structure
        if stored.values.dtype != self.dtype or type(stored.values) is not self.kind:
            return False
        if self.structure() is structure:
            return True
        return self.is_dense and structure.shape == self.shape and structure.format == self.format
