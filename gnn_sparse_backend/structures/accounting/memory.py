"""``gsb.memory``: what a structure holds, or the process."""

from __future__ import annotations

from typing import Any, overload

from .held import Memory, memory_of
from .process import ProcessMemory, memory_of_process


@overload
def memory() -> ProcessMemory: ...
@overload
def memory(structure: Any) -> Memory: ...


def memory(structure: Any = ...) -> Memory | ProcessMemory:
    """What a structure holds: the arrays that it was made of, and every fact that it has derived, with bytes. Without a
    structure: what the process holds.

        print(gsb.memory(graph))
        graph.release()            # frees what was derived; it is derived again where it is needed
        print(gsb.memory())        # structures, what is kept for later, files, and the rest

    Bytes of a structure are those of the whole storage that an array keeps alive, and count once however many facts
    share it. On a GPU they are those of the GPU. Kernels belong to the process and are not in it: ``gsb.status()``
    names their packs.

    Raises:
        TypeError: anything but a ``Graph``, ``RelGraph``, ``Segments``, ``KernelMap``, ``masks.Mask`` or
            ``nn.SparseTensor``.
    """
    return memory_of_process() if structure is ... else memory_of(structure)
