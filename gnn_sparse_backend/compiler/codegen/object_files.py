"""Files of machine code, known by how they begin: those of Linux (ELF), macOS (Mach-O) and Windows (COFF)."""

from __future__ import annotations

import struct
from pathlib import Path

from ...frozen import dataclass

ELF, MACH_O, COFF = "ELF", "Mach-O", "COFF"
_ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
_MACH_O_MAGIC, _MACH_O_MACHINES = 0xFEEDFACF, {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_COFF_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
_SEGMENT_64, _HEADER = 0x19, 32
"""Mach-O's command that says where a segment lies in the file, and the bytes before the commands."""


@dataclass(frozen=True)
class Machine:
    """What machine code is for: format is "ELF", "Mach-O" or "COFF", architecture as LLVM's triples have it."""

    format: str
    architecture: str


def machine_of(data: bytes) -> Machine | None:
    """What the code of an object file, or of a library of Linux or macOS, is for; None for anything else."""
    if len(data) < _HEADER:
        return None
    (magic, kind), (short,) = struct.unpack_from("<II", data), struct.unpack_from("<H", data)
    if data.startswith(b"\x7fELF"):
        return Machine(ELF, _ELF_MACHINES.get(struct.unpack_from("<H", data, 18)[0], "unknown"))
    if magic == _MACH_O_MAGIC:
        return Machine(MACH_O, _MACH_O_MACHINES.get(kind, "unknown"))
    return Machine(COFF, _COFF_MACHINES[short]) if short in _COFF_MACHINES else None


def is_library(data: bytes) -> bool:
    """Whether bytes begin as those of a library of Linux or macOS do."""
    found = machine_of(data)
    return found is not None and found.format in (ELF, MACH_O)


def is_cut_short(path: Path) -> bool:
    """Whether a library ends before what its header lists, or is none: loading it would be a bus error."""
    data = path.read_bytes()
    found = machine_of(data)
    if found is None or len(data) < 64:
        return True
    if found.format == MACH_O:
        return _end_of_segments(data) > len(data)
    (offset,) = struct.unpack_from("=Q", data, 40)  # the table of sections, which linkers of ELF put last
    entry_size, entries = struct.unpack_from("=HH", data, 58)
    return int(offset + entry_size * entries) > len(data)


def _end_of_segments(data: bytes) -> int:
    """Where the last segment of a Mach-O file ends, or its commands."""
    commands, size = struct.unpack_from("<II", data, 16)
    at, end = _HEADER, _HEADER + size
    for _ in range(commands):
        if at + 8 > len(data):
            break
        command, length = struct.unpack_from("<II", data, at)
        if command == _SEGMENT_64 and at + 56 <= len(data):
            offset, nbytes = struct.unpack_from("<QQ", data, at + 40)
            end = max(end, offset + nbytes)
        at += length
    return int(end)
