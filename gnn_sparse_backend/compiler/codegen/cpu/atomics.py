"""Additions that no other thread comes between, as functions in LLVM's language: TVM has none for the CPU."""

from __future__ import annotations

ADD = "gsb_atomic_add"
"""Begins the names of the functions; the type follows."""
TYPES = {"float32": "float", "float64": "double", "int64": "i64", "int32": "i32"}


def addition(dtype: str) -> str:
    """The text of the function that adds a number of a type to a place in memory."""
    kind = TYPES[dtype]
    operation = "fadd" if dtype.startswith("float") else "add"
    return (
        f"define linkonce_odr hidden i32 @{ADD}_{dtype}(ptr %p, {kind} %x) alwaysinline nounwind {{\n"
        f"  %old = atomicrmw {operation} ptr %p, {kind} %x monotonic\n  ret i32 0\n}}\n"
    )
