"""What a program computes, in a line, from its printed text: for lists of kernels."""

from __future__ import annotations

import re

from ..frozen import dataclass

_AXIS = re.compile(r"^(\w+) = p\.\w+\('\w+', (\d+)\)$", re.M)
_BUFFER = re.compile(r"^(\w+) = p\.buffer\('\w+', \(([^)]*)\), '(\w+)'", re.M)
_ASSIGNED = re.compile(r"^ +(\w+)\[.*?\] = (.*)$", re.M)
_INDICES = re.compile(r"\[[^\[\]]*\]")
_CONSTANT = re.compile(r"number\(([^(),]+), '\w+'\)")


@dataclass(frozen=True)
class Described:
    """operands: the parameters that hold numbers, each with its fixed extents and its type, ``X0 4 float32``; message:
    the first expression over them, without what it is added to.
    """

    operands: tuple[str, ...]
    message: str


def described(program: str) -> Described:
    """Operands and message of a printed program; both empty where it is no program of stage I."""
    extents = dict(_AXIS.findall(program))
    numbers = [found for found in _BUFFER.findall(program) if not found[2].startswith(("int", "uint"))]
    types = {dtype for _, _, dtype in numbers}
    operands = []
    for name, axes, dtype in numbers:
        sizes = "x".join(extents[axis] for axis in re.findall(r"\w+", axes) if axis in extents)
        operands.append(" ".join(filter(None, (name, sizes, dtype if len(types) > 1 else ""))))
    if len(types) == 1:
        operands.append(*types)
    reads = re.compile(rf"\b(?:{'|'.join(name for name, _, _ in numbers) or '$'})\[")
    into, found = next((line for line in _ASSIGNED.findall(program) if reads.search(line[1])), ("", ""))
    while (plain := _INDICES.sub("", found)) != found:
        found = plain
    found = found.removeprefix(f"{into} + ")
    return Described(tuple(operands), _CONSTANT.sub(r"\1", found))
