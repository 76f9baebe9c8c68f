"""Every environment variable ``GSB_*``: what may be written there, what holds without it, what it does, who reads it.

The package asks for a variable through its entry here, ``CACHE_DIR.get()``, at the time that ``read`` says, and never
on the path of a call. A variable that is not set or empty has its default; a value that is none of what may be written
raises ValueError, but for ``GSB_LOG``, which is read when the package is imported: it warns, as a name does that is in
neither table.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from .frozen import dataclass
from .spelling import meant, nearest

T = TypeVar("T")
PREFIX = "GSB_"


class UnknownVariableWarning(UserWarning):
    """An environment variable is named ``GSB_*``, and nothing reads it, or its value is not one that it may have."""


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One environment variable.

    parse: its value of its text; ValueError for any other. values: what may be written, as "must be ..." goes on.
    example: one such text. default, effect, read: in words, for people: what holds where it is not set, what it does,
    and when it is read, by which module. choices: all texts that may be written, where they are few.
    """

    name: str
    parse: Callable[[str], T]
    values: str
    example: str
    default: str
    effect: str
    read: str
    choices: tuple[str, ...] = ()

    def get(self) -> T | None:
        """The value in the environment now; None where it is not set or empty. ValueError quotes a malformed one."""
        text = os.environ.get(self.name)
        if not text:
            return None
        try:
            return self.parse(text)
        except ValueError:
            raise ValueError(
                f"{self.name} must be {self.values}, got {text!r}{meant(text, self.choices)}; "
                f"write for example {self.name}={self.example}, or unset it"
            ) from None


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


_UNITS = {
    **{f"{letter}{end}": 1000**power for power, letter in enumerate("KMGT", 1) for end in ("", "B")},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)},
    "B": 1,
    "": 1,
}


def number_of_bytes(text: str) -> int:
    """A number of bytes, as ``1073741824``, ``1GB``, ``1.5 GiB`` or ``500M`` say it. Raises ValueError for any other
    text.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Z]*)", text.strip().upper())
    if found is None or found[2] not in _UNITS or ("." in found[1] and not found[2]):
        raise ValueError(text)
    return int(float(found[1]) * _UNITS[found[2]]) if "." in found[1] else int(found[1]) * _UNITS[found[2]]


def _alignment(text: str) -> int:
    if (found := _number(text)) == 0 or found % 16:
        raise ValueError(text)
    return found


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return parse


def _switch(text: str) -> bool:
    return _one_of("0", "1")(text) == "1"


def _architecture(text: str) -> str:
    if not re.fullmatch(r"sm_\d{2,3}[af]?", text):
        raise ValueError(text)
    return text


COMPILE_WHEN = ("now", "background")
CUDA_COMPILERS = ("nvcc", "nvrtc")
LOG_LEVELS = ("info", "debug")
BYTES = "a number of bytes, with or without a unit"
TARGETS = (
    "native",
    *("x86-64-v2", "x86-64-v3", "x86-64-v4"),
    *("aarch64", "neoverse-n1", "neoverse-v1", "neoverse-v2"),
)

CACHE_BYTES = Variable(
    "GSB_CACHE_BYTES",
    number_of_bytes,
    BYTES,
    "500MB",
    "2GB",
    "how much room compiled kernels may take on disk, about; beyond it those go that were not used for longest",
    "when a kernel is kept on disk (compiler.cache.bound)",
)
CACHE_DIR = Variable(
    "GSB_CACHE_DIR",
    str,
    "a folder",
    "~/kernels",
    "the user's cache folder of the platform, ~/.cache/gnn_sparse_backend on Linux",
    "where compiled kernels and measured plans are kept",
    "when the first kernel or plan is asked for (compiler.cache.disk)",
)
COMPILE = Variable(
    "GSB_COMPILE",
    _one_of(*COMPILE_WHEN),
    f"one of {', '.join(COMPILE_WHEN)}",
    "background",
    "now",
    "background: a call of an enabled framework whose kernel has to be compiled is computed by the framework, while "
    "another process compiles it; now: it waits",
    "when a framework is first enabled (compiler.cache.background)",
)
CUDA_ALIGNMENT = Variable(
    "GSB_CUDA_ALIGNMENT",
    _alignment,
    "a number of bytes, a multiple of 16",
    "256",
    "16",
    "operands at addresses that it does not divide are copied before kernels for a GPU, and those of dense products, "
    "read them",
    "when the operators are imported (runtime.layout)",
)
CUDA_ARCH = Variable(
    "GSB_CUDA_ARCH",
    _architecture,
    "a compute architecture",
    "sm_90a",
    "that of the GPU",
    "which architecture kernels for a GPU are compiled for",
    "when a GPU is first used (runtime.devices)",
)
CUDA_COMPILER = Variable(
    "GSB_CUDA_COMPILER",
    _one_of(*CUDA_COMPILERS),
    f"one of {', '.join(CUDA_COMPILERS)}",
    "nvrtc",
    "nvrtc where it and its headers are installed, else nvcc",
    "which compiler makes machine code of CUDA source",
    "when a kernel for a GPU is compiled (compiler.codegen.cuda.machine_code)",
    CUDA_COMPILERS,
)
CUDA_MADE_BY = Variable(
    "GSB_CUDA_MADE_BY",
    str,
    "name and version of a compiler",
    "nvrtc-13.0",
    "the compiler of CUDA source on this machine",
    "whose kernels for a GPU are looked for in the cache, where that was filled on another machine",
    "when the first kernel for a GPU is asked for (compiler.codegen.cuda.library)",
)
DEFERRED = Variable(
    "GSB_DEFERRED",
    _switch,
    "0 or 1",
    "0",
    "1",
    "whether what a layer computes for every edge waits until it is known what for; gsb.enable(..., deferred=...) goes "
    "before it",
    "when a framework is enabled (integrations.core.registry)",
)
FEW_EDGES = Variable(
    "GSB_FEW_EDGES",
    _number,
    "a number of features of edges",
    "0",
    "2097152",
    "up to how many features of edges, edges times features, an operation reads a graph as it is listed, and nothing "
    "of a layer is deferred; 0: no graph is so small",
    "when a framework is first enabled (integrations.few.__init__)",
)
LOG = Variable(
    "GSB_LOG",
    _one_of(*LOG_LEVELS),
    f"one of {', '.join(LOG_LEVELS)}",
    "info",
    "nothing is shown",
    "shows on the error stream which kernels are compiled or loaded, which plans are chosen, and what falls back to a "
    "framework; debug gives every such event and the reasons for a plan",
    "when the package is imported (log)",
    LOG_LEVELS,
)
PACK = Variable(
    "GSB_PACK",
    str,
    "files",
    "/srv/kernels.gsb",
    "no pack",
    "packs of kernels, several joined as in PATH, in which a kernel is looked for before the cache and the compiler",
    "when the first kernel is asked for (compiler.packs.in_force)",
)
POOL_BYTES = Variable(
    "GSB_POOL_BYTES",
    number_of_bytes,
    BYTES,
    "1GB",
    'a sixteenth of the machine\'s memory, for all large tensors half of it with memory="low"',
    "how much memory of dropped results, or of all large tensors, is kept for later ones; 0 keeps nothing",
    "when the operators are imported (runtime.pool)",
)
PYG_CACHE_BYTES = Variable(
    "GSB_PYG_CACHE_BYTES",
    number_of_bytes,
    BYTES,
    "1GB",
    "an eighth of the machine's memory",
    "how much memory the graphs made of PyG's edge indices may take together",
    "when PyG is first enabled (integrations.core.room)",
)
REUSE_MEMORY = Variable(
    "GSB_REUSE_MEMORY",
    _switch,
    "0 or 1",
    "0",
    "1 while a framework is enabled",
    "whether the memory of freed large tensors is kept for the next ones; gsb.reuse_memory() goes before it",
    "when a framework is enabled or disabled (runtime.allocator)",
)

SAMPLER = Variable(
    "GSB_SAMPLER",
    _switch,
    "0 or 1",
    "1",
    "0",
    "whether PyG's loaders sample by this package even where pyg-lib or torch-sparse is installed, whose samples for a "
    "seed are others; where neither is, or torch-sparse cannot, it does so anyway",
    "when PyG is enabled (integrations.pyg.sampling)",
)
TARGET = Variable(
    "GSB_TARGET",
    _one_of(*TARGETS),
    f"one of {', '.join(TARGETS)}",
    "x86-64-v3",
    "the best of the packs, without one this processor",
    "which processor kernels are compiled for, one that this machine runs code for",
    "when the first kernel is asked for (compiler.codegen.cpu.host)",
    TARGETS,
)
TORCHSCRIPT = Variable(
    "GSB_TORCHSCRIPT",
    _switch,
    "0 or 1",
    "1",
    "0",
    "whether torch.jit.script compiles the reductions of PyG's layers as operators of this package, which a process "
    "that loads the program has to import first; otherwise they are PyG's own",
    "when PyG is enabled (integrations.pyg.scripting)",
)

TORCHSPARSE = Variable(
    "GSB_TORCHSPARSE",
    _one_of("2.1", "1.4"),
    "2.1 or 1.4",
    "1.4",
    "2.1",
    "whose coordinates a program of torchsparse means: of 2.1, the batch first and halved by a stride of 2, or of 1.4 "
    "and 2.0, the batch last and in cells of the finest grid",
    "when torchsparse is first imported while it is enabled (integrations.torchsparse.conventions)",
)

VARIABLES: tuple[Variable[Any], ...] = (
    CACHE_BYTES,
    CACHE_DIR,
    COMPILE,
    CUDA_ALIGNMENT,
    CUDA_ARCH,
    CUDA_COMPILER,
    CUDA_MADE_BY,
    DEFERRED,
    FEW_EDGES,
    LOG,
    PACK,
    POOL_BYTES,
    PYG_CACHE_BYTES,
    REUSE_MEMORY,
    SAMPLER,
    TARGET,
    TORCHSCRIPT,
    TORCHSPARSE,
)
"""What the package reads."""

CHECKOUT: Mapping[str, str] = {
    "GSB_CHECKOUTS": "the folder of checkouts of published networks, for tests (tests/checkouts.py)",
    "GSB_DATA": "the folder of real data sets, for tests, benchmarks and models",
    "GSB_SANITIZED_DEVICE": "set by tests.sanitizer for the process that it watches",
    "GSB_SERIAL_GPU": "1: the CPU's own tests take the way to a GPU, whose kernels run serially on the CPU",
    "GSB_TACO": "the folder in which TACO was built, for benchmarks",
    "GSB_SIMT": "set by tests.simt: kernels are their CUDA source, thread by thread",
    "GSB_SIMT_LARGE": "1: tests.simt runs plans on large graphs too",
    "GSB_SIMT_ORDERS": "numbers of orders, 0,1,7, in which tests.simt runs the threads of every launch",
    "GSB_TEST_BILLIONS": "1: a test reads 2^31 edges of a file of 16 GiB",
}
"""What only tests, benchmarks and models of a checkout read, and what for."""


def unknown_variables() -> dict[str, str | None]:
    """Names in the environment that begin with ``GSB_`` and are in no table, each with the nearest known name."""
    known = [*(variable.name for variable in VARIABLES), *CHECKOUT]
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    found = {}
    for name in unknown:  # the prefix, which all have, would make any two alike
        close = nearest(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known])
        found[name] = PREFIX + close if close else None
    return found


def warn_of_unknown() -> None:
    """Give one `UnknownVariableWarning` for each of ``unknown_variables``."""
    for name, near in unknown_variables().items():
        advice = f"is {near} meant?" if near else "`gsb doctor` lists the names that there are"
        warnings.warn(f"{name} is set, but nothing reads it: {advice}", UnknownVariableWarning, stacklevel=2)


def markdown_table() -> str:
    """The variables of the package as a table in Markdown."""
    lines = ["| Variable | Value | Default | Effect | Read |", "| --- | --- | --- | --- | --- |"]
    for v in VARIABLES:
        lines.append(f"| `{v.name}` | {v.values}, such as `{v.example}` | {v.default} | {v.effect} | {v.read} |")
    return "\n".join(lines) + "\n"
