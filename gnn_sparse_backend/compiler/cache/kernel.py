"""The kernel object: a compiled function and where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ...frozen import dataclass

_HEADINGS = {
    "program": "Stage I, coordinate space",
    "plan": "Schedule",
    "stage2": "Stage II, position space",
    "stage3": "Stage III, loops",
    "cuda": "CUDA",
    "ptx": "PTX",
    "assembly": "Assembly",
}


@dataclass(frozen=True, eq=False)
class Kernel:
    """A compiled function. Immutable, compared by identity, safe to call from several threads.

    Call it with tensors (anything with DLPack: torch tensors, NumPy arrays) and Python ints in the order of the
    program's parameters. Outputs are parameters too and are written in place; nothing is returned. The machine code
    checks arity, types and ranks (TypeError), shapes and strides (ValueError); **it does not check index values**,
    which the caller guarantees.

    ``entry`` is the bare TVM function, for a caller that counts nanoseconds: ``kernel(...)`` is ``kernel.entry(...)``.

    ``origin`` says how the code came into this process:
        ``"compiled"``  compiled here, and kept on disk
        ``"memory"``    compiled here, and not kept: the disk cache is off or cannot be written
        ``"disk"``      loaded from the disk cache
        ``"pack"``      loaded from a pack (`load_pack`)
    ``compile_seconds`` is what compiling took, in the process that did it.
    ``scheduled_by`` is the user's function that wrote its schedule (``gsb.schedule``), "" for the package's own.
    """

    entry: Any
    name: str
    key: str
    origin: str
    compile_seconds: float
    target: str
    _module: Any = field(repr=False)  # owns the library that ``entry`` points into
    _texts: Mapping[str, str] = field(repr=False)
    _written: Mapping[str, Callable[[], str]] = field(default_factory=dict, repr=False)  # texts, when somebody asks
    scheduled_by: str = ""

    def __call__(self, *arguments: object) -> None:
        self.entry(*arguments)

    def stages(self, *names: str) -> str:
        """The texts of the stages, each under a heading, to be printed: all of them in the order of compilation, or
        those that are named.

        Raises what :meth:`script` raises.
        """
        known = [name for name in _HEADINGS if name in self.stage_names]
        shown = names or (*known, *(name for name in self.stage_names if name not in known))
        return "\n\n".join(f"# {_HEADINGS.get(name, name)}\n\n{self.script(name).strip()}" for name in shown) + "\n"

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the texts that :meth:`script` has: "program", "plan", and those of the stages between them and the
        machine code. What `compile_program` made has "stage2", "stage3" and "assembly", a GPU's kernel "cuda" and "ptx"
        in the place of the last.
        """
        return (*self._texts, *self._written)

    def script(self, stage: str = "program") -> str:
        """The text of one stage of this kernel's compilation.

        "program" and "plan", which its key is made of, are kept with it. The others follow from these two, and are
        written anew at each request, which takes as long as it took to come so far in compiling.

        Raises ValueError for a stage that it has not, and for "ptx" BuildError where no compiler of CUDA is installed.
        """
        if stage in self._texts:
            return self._texts[stage]
        if stage in self._written:
            return self._written[stage]()
        raise ValueError(f"kernel {self.name!r} has no text {stage!r}; it has {', '.join(self.stage_names)}")

    def __repr__(self) -> str:
        return (
            f"Kernel({self.name!r}, key={self.key[:12]}, origin={self.origin!r}, "
            f"compile_seconds={self.compile_seconds:.3f})"
        )


def constant_argument(array: Any) -> Any:
    """A tensor (anything with DLPack) as kernels take it in a tenth of the time, for one that is passed again and
    again.

    It shares the tensor's memory, and keeps it alive. Which stream of a GPU a kernel runs on is told by its other
    tensors.
    """
    import tvm_ffi

    return tvm_ffi.from_dlpack(array)
