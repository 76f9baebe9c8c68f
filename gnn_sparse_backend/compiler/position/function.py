"""The value of stage II: a schedulable TVM function, and the axes of its buffers.

Buffers that hold values have one dimension per axis, indexed by positions relative to the parent element; index
arrays are one-dimensional. TVM's own schedule primitives rewrite the function; the table is what flattening needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tvm_ffi

from ...deferred import tirx
from ...frozen import dataclass
from ..language.axes import Axis
from ..language.program import Program


@dataclass(frozen=True)
class PositionFunction:
    """A function of stage II.

    Attributes:
        function: the TVM function, a ``tvm.tirx.PrimFunc``.
        program: the stage I program that it came from.
        axes: the axes of each buffer of the program, by the buffer's name.
    """

    function: tirx.PrimFunc
    program: Program
    axes: dict[str, tuple[Axis, ...]]

    @property
    def name(self) -> str:
        return self.program.name

    def mutated(self, *visitors: tuple[type, Callable[..., Any]]) -> PositionFunction:
        """Return a copy whose body is rewritten by `tvm_ffi.structural_mutate`."""
        body = tvm_ffi.structural_mutate(self.function.body, list(visitors))
        return self.with_function(self.function.with_body(body))

    def with_function(self, function: tirx.PrimFunc) -> PositionFunction:
        return replace(self, function=function)

    def script(self) -> str:
        return str(self.function.script())
