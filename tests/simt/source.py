"""CUDA source as C++ that `simt.h` runs, and a library of it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

HEADER = Path(__file__).with_name("simt.h")
FLAGS = (
    "-std=c++17",
    "-O1",
    "-mf16c",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-w",
    "-fPIC",
    # vectors are loaded from where they may be
    "-fsanitize=alignment",
    "-fno-sanitize-recover=alignment",
)
_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\) \{')
_ASM = re.compile(
    r'__asm__ __volatile__\(\s*"mma\.sync\.aligned\.(m16n8k\d+)\.row\.col\.f32\.(f16|bf16|tf32)\.\2\.f32"'
    r'\s*"[^"]*"\s*:(.*?)\);\n',
    re.DOTALL,
)
_KINDS = {("m16n8k16", "f16"): "MMA_FLOAT16", ("m16n8k16", "bf16"): "MMA_BFLOAT16", ("m16n8k8", "tf32"): "MMA_TF32"}


def missing() -> str:
    """What this machine lacks for it, in words; nothing if nothing."""
    tools = [tool for tool in ("g++", "nm") if shutil.which(tool) is None]
    if platform.machine() not in ("x86_64", "AMD64"):
        return "half precision is converted by instructions of x86-64"
    return f"no {' and no '.join(tools)} on PATH" if tools else ""


def as_cpp(source: str) -> str:
    """The kernels of CUDA text that TVM generated, each with an entry ``<name>_entry`` that takes its arguments by
    address.

    Raises ValueError for what this does not know.
    """
    kernels = 'extern "C" __global__' + source.partition('extern "C" __global__')[2]
    kernels = _ASM.sub(_mma, kernels)
    if "asm" in kernels:
        raise ValueError(f"an instruction that simt.h does not know: {kernels[kernels.index('asm') :][:200]}")
    kernels = re.sub(
        r"__shared__ alignas\((\d+)\)", r'static __attribute__((section("simt_shared"), aligned(\1)))', kernels
    )
    entries = []
    for name, parameters in _KERNEL.findall(kernels):
        types = [re.sub(r"\s*(__restrict__)?\s*\w+$", "", one.strip()) for one in parameters.split(",")]
        arguments = ", ".join(f"*({kind}*)p[{at}]" for at, kind in enumerate(types))
        entries.append(f'extern "C" void {name}_entry(void** p) {{ {name}({arguments}); }}\n')
    if not entries:
        raise ValueError("no kernel in the source")
    return f'#include "{HEADER.name}"\n{kernels}\n{"".join(entries)}'


def library_of(source: str, folder: Path) -> Path:
    """A shared library of CUDA source in a folder, compiled once."""
    text = as_cpp(source)
    path = folder / f"{_hash(text)}.so"
    if not path.exists():
        cpp = folder / f"{path.stem}-{os.getpid()}.cpp"
        header = _header(folder)
        cpp.write_text(text)
        _compile(path, "-shared", "-I", str(header.parent), str(cpp))
        cpp.unlink()
    return path


def _header(folder: Path) -> Path:
    """`simt.h` compiled beforehand, which takes most of the time, in a folder of its own."""
    made = folder / _hash("") / f"{HEADER.name}.gch"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        _compile(made, "-x", "c++-header", str(HEADER))
    return made


def _compile(path: Path, *arguments: str) -> None:
    own = path.with_name(f"{path.name}-{os.getpid()}")
    done = subprocess.run(["g++", *FLAGS, *arguments, "-o", str(own)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ {' '.join(arguments)} failed:\n{done.stderr[:4000]}")
    own.rename(path)  # of several processes any


def _hash(text: str) -> str:
    return hashlib.sha256("\n".join([text, HEADER.read_text(), *FLAGS]).encode()).hexdigest()[:32]


def _mma(found: re.Match) -> str:
    """The instruction as a call: fragments in registers, the accumulators also out of them."""
    operands = _operands(found[3])
    a, b, c = operands[4:8], operands[8:10], operands[10:14]
    assert operands[:4] == c and len(operands) == 14, operands
    takes = ", ".join(f"{{{', '.join(group)}}}" for group in (a, b, c))
    back = " ".join(f"{place} = fragments.c[{at}];" for at, place in enumerate(c))
    return (
        f"simt::Fragments fragments = {{{takes}}}; simt::now->fragments = &fragments; "
        f"simt::meet(__LINE__, simt::{_KINDS[found[1], found[2]]}, ~0u); {back}\n"
    )


def _operands(text: str) -> list[str]:
    """What stands in the parentheses behind each constraint, "=f"(...), "r"(...)."""
    found = []
    for match in re.finditer(r'"=?[rf]"\(', text):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found.append(text[match.end() : end - 1])
    return found


__all__ = ["as_cpp", "library_of", "missing"]
