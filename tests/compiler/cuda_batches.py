"""Many CUDA kernels in one source: nvcc takes most of its time to read headers, and TVM to make the code of the
host.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import tvm
from tvm import tirx

from gnn_sparse_backend.compiler.codegen import PtxasStatistics, compile_cuda, generate_cuda
from gnn_sparse_backend.compiler.codegen.cuda.library import check_lane_reductions
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import ATTEMPTS, _nvcc, nvcc_path
from gnn_sparse_backend.compiler.codegen.cuda.ptxas import parse_ptxas
from gnn_sparse_backend.compiler.codegen.cuda.spills import spilled_bytes, with_more_room

_KERNEL = 'extern "C" __global__'


def sources(functions: dict[str, tirx.PrimFunc], arch: str = "sm_80") -> dict[str, str]:
    """The CUDA source of each function, whose kernel is called ``<name>_kernel``; of all of them at once.

    Raises BuildError where TVM makes no code, or code without the reductions among lanes that a function says it has.
    """
    module = tvm.IRModule({name: function.with_attr("global_symbol", name) for name, function in functions.items()})
    head, *kernels = generate_cuda(module, arch).split(_KERNEL)
    # nothing but types and functions of CUDA stands before them; kernels are declared, and then defined
    defined = {re.search(r"(\w+)_kernel\(", text)[1]: text for text in kernels if "{" in text}
    assert defined.keys() == functions.keys()
    for name, function in functions.items():
        check_lane_reductions(name, function, defined[name])
    return {name: head + _KERNEL + text for name, text in defined.items()}


def joined(texts: dict[str, str]) -> str:
    """One source of several, as `sources` gives them."""
    found = [text.partition(_KERNEL) for text in texts.values()]
    return found[0][0] + "".join(_KERNEL + body for _, _, body in found)


def ptx_of(texts: dict[str, str], arch: str) -> tuple[str, dict[str, str]]:
    """The PTX of all kernels, and the part of each."""
    ptx = compile_cuda(joined(texts), arch, "ptx").code.decode()
    entries = dict(re.findall(r"\.entry (\w+)_kernel\((.*?)(?=\.entry|\Z)", ptx, re.DOTALL))
    assert entries.keys() == texts.keys()
    return ptx, entries


def assembled(ptx: str, texts: dict[str, str], arch: str, folder: Path) -> dict[str, PtxasStatistics]:
    """What ptxas says of each kernel of PTX that was made of these texts, for an architecture that is as new or newer.

    As `machine_code`, which takes nvcc longer: the same PTX serves several architectures, as a driver makes code of it.
    """
    (folder / "kernels.ptx").write_text(ptx)
    done = subprocess.run(
        [
            Path(nvcc_path()).with_name("ptxas"),
            "-v",
            "-O3",
            f"-arch={arch}",
            f"--register-usage-level={ATTEMPTS[0][0]}",
            folder / "kernels.ptx",
            "-o",
            folder / "kernels.cubin",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return _told(done.stderr + done.stdout, texts, arch)


def machine_code(texts: dict[str, str], arch: str) -> dict[str, PtxasStatistics]:
    """What ptxas says of each kernel, compiled as `compile_cuda` does it."""
    code, log = _nvcc(joined(texts), arch, "cubin", "all", ATTEMPTS[0][0])
    assert code
    return _told(log, texts, arch)


def _told(log: str, texts: dict[str, str], arch: str) -> dict[str, PtxasStatistics]:
    """What ptxas has said, but of kernels that spill what it says with as much room as `compile_cuda` gives them: all
    of them at once, and one by one only what spills whatever room it has.
    """
    found = _by_name(log)
    assert found.keys() == texts.keys()
    spilled = {name: text for name, text in texts.items() if spilled_bytes([found[name]])}
    source = joined(spilled) if spilled else ""
    while (eased := with_more_room(source, [found[name] for name in spilled], ATTEMPTS[0][1])) is not None:
        source = eased
        found |= _by_name(_nvcc(source, arch, "cubin", "all", ATTEMPTS[0][0])[1])
    for name, text in spilled.items():
        if spilled_bytes([found[name]]):
            found[name] = compile_cuda(text, arch).of(f"{name}_kernel")
    return found


def _by_name(log: str) -> dict[str, PtxasStatistics]:
    return {kernel.kernel.removesuffix("_kernel"): kernel for kernel in parse_ptxas(log)}
