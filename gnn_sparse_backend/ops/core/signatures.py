"""What the checks of an operator ask of its operands, as a key: after a call that went through, the next like it skips
them.
"""

from __future__ import annotations

from typing import Any

import torch

from ...compiler.own_schedules import in_force
from .operands import is_plain


def signature_of(call: tuple, operands) -> tuple | None:
    """A key of a call with such operands, None among them.

    Beside the structure by which it is kept, and ``call``, all that an operator checks and decides by depends on it:
    shapes, types, devices, and strides of what is not contiguous. None where that is not all: an operand is no ordinary
    dense tensor, something traces or transforms the call, or types differ, which autocast may convert.
    """
    if operands[0] is None or not is_plain(*operands):
        return None
    dtype = operands[0].dtype
    parts = [call, in_force.generation, dtype]
    for x in operands:
        if x is None:
            parts.append(None)
        elif x.dtype is dtype and x.layout is torch.strided:
            parts += x.shape, x.device, x.is_contiguous() or x.stride()
        else:
            return None
    return tuple(parts)


def prepared_call(structure, call: tuple, operands) -> tuple[tuple | None, Any]:
    """(the signature of a call, what the structure keeps of the last one like it); None for what there is not."""
    signature = signature_of(call, operands)
    if signature is None:
        return None, None
    try:
        return signature, structure.calls.get(signature)
    except TypeError:  # an argument that cannot be hashed is none that went through
        return None, None
