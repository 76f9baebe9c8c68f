"""A GPU's machine code in the LLVM text of its host's code, for machines without a linker.

TVM serialises the modules that a module imports for the shared objects that it links, as one array: ::

    bytes, from here on                                                  (all numbers are 64 bits)
    n + 1, and n + 1 offsets into the children; their number, and the children: which imports which, the host's module
    first then of each module its kind ("_lib" for the host's), and, but for the host's, bytes that
    ``ffi.Module.load_from_bytes.<kind>`` takes

strings and bytes after their lengths. Here each import is a comment at the end of the text.
"""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import tvm_ffi

from ....deferred import tvm

_MARK = "; gsb.import "
_PACK, _LOAD = "runtime.ModulePackImportsToTensor", "ffi.Module.load_from_bytes."


def text_with_imports(module: tvm.runtime.Module) -> str:
    """The LLVM text of a compiled module, with what it imports. Raises ValueError where TVM packs imports otherwise."""
    lines = [f"{_MARK}{kind} {base64.b64encode(data).decode()}\n" for kind, data in _imports(module)]
    return "".join([module.inspect_source("ll"), "\n", *lines])


def add_imports(module: tvm.runtime.Module, path: Path) -> None:
    """Give a module that was loaded from LLVM text the imports that are in it."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(_MARK):
            kind, data = line.removeprefix(_MARK).split(" ")
            module.import_module(tvm_ffi.get_global_func(_LOAD + kind)(base64.b64decode(data)))


def _imports(module: tvm.runtime.Module) -> list[tuple[str, bytes]]:
    """(kind, bytes) of each import."""
    if not module.imports:
        return []
    packed: bytes = tvm_ffi.get_global_func(_PACK)(module).numpy().tobytes()
    place = 8
    count = len(module.imports)

    def numbers(how_many: int) -> tuple[int, ...]:
        nonlocal place
        found = struct.unpack_from(f"={how_many}Q", packed, place)
        place += 8 * how_many
        return found

    def text() -> bytes:
        nonlocal place
        (length,) = numbers(1)
        place += length
        return packed[place - length : place]

    # the host's module imports all, the others nothing
    tree = (count + 2, 0, *[count] * (count + 1), count, *range(1, count + 1))
    if numbers(len(tree)) != tree or text() != b"_lib":
        raise ValueError("TVM packs imported modules in a way that is not known here")
    found = [(text().decode(), text()) for _ in range(count)]
    if place != len(packed):
        raise ValueError("TVM packs imported modules in a way that is not known here")
    return found
