"""The types of values: a row for each, from which all that depends on a type alone is read."""

from __future__ import annotations

from typing import NamedTuple


class Type(NamedTuple):
    """What is true of a type.

    bytes: of a value. accumulator: the type that values are added up in.
    """

    bytes: int
    accumulator: str


TYPES = {
    "float64": Type(8, "float64"),
    "float32": Type(4, "float32"),
    "float16": Type(2, "float32"),
    "bfloat16": Type(2, "float32"),
    "int64": Type(8, "int64"),
    "int32": Type(4, "int64"),
    "int16": Type(2, "int64"),
    "int8": Type(1, "int64"),
    "uint8": Type(1, "int64"),
    "uint16": Type(2, "int64"),
    "uint32": Type(4, "int64"),
    "bool": Type(1, "int64"),
}
ACCUMULATOR = {name: row.accumulator for name, row in TYPES.items()}
BYTES = {name: row.bytes for name, row in TYPES.items()}
FLOATS = tuple(name for name in TYPES if "float" in name)
INTEGERS = tuple(name for name in TYPES if name not in FLOATS)
INDEX_DTYPES = ("int32", "int64")
"""The types of index arrays."""
