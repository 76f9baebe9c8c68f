"""CUDA: targets, source, and machine code with what ptxas says about it. None of it needs a GPU or a driver."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import tvm_ffi

from ....config import CUDA_COMPILER, CUDA_COMPILERS
from ....deferred import load_devices, tvm
from ....frozen import dataclass
from ..cpu.host import host_target
from ..errors import BuildError
from ..loaded import LoadedModule
from ..target import Target
from .nvidia import INSTALL, include_folders, nvcc_path
from .nvrtc import NvrtcError, missing_for_nvrtc, run_nvrtc
from .ptxas import PtxasStatistics, parse_ptxas
from .spills import spilled_bytes, with_more_room

FORMATS = ("ptx", "cubin")
COMPILERS = CUDA_COMPILERS

_CALLBACK = "tvm_callback_cuda_compile"
_callback_lock = threading.Lock()

# No fast-math: it flushes denormals to zero and approximates division and square root. TVM's own compile callback turns
# it on. ptxas by itself spills a register or two of some kernels where that lets one more block run beside the others:
# hardly so at level 10, which is also TVM's. What spills there with room for 512 threads, 128 registers each, is tried
# at ptxas' own level, 5, whose optimisations take fewer registers, and what spills still with all registers that a
# thread can have.
ATTEMPTS = ((10, 512), (5, 512), (10, 256))


@dataclass(frozen=True)
class CudaBinary:
    """Machine code (or PTX text) of CUDA source: the bytes, and ptxas' statistics (empty for PTX)."""

    code: bytes
    format: str
    arch: str
    statistics: tuple[PtxasStatistics, ...]

    def of(self, kernel: str) -> PtxasStatistics:
        """Statistics of one kernel; KeyError with the names there are when it is not among them."""
        found = [entry for entry in self.statistics if entry.kernel == kernel]
        if not found:
            raise KeyError(
                f"no kernel {kernel!r}; there are {', '.join(entry.kernel for entry in self.statistics) or 'none'}"
            )
        return found[0]


# The code of the host checks arguments and launches: made for any processor of its kind, kernels in a cache serve every
# machine.
HOST = "generic"


def cuda_target(arch: str) -> Target:
    """A GPU of compute architecture ``arch`` ("sm_80", "sm_90") with any processor like this one as its host; neither
    need be there.
    """
    _check_arch(arch)
    load_devices()
    return Target("cuda", HOST, host_target().triple, arch=arch)


def cuda_source(module: tvm.runtime.Module | LoadedModule) -> str:
    """The CUDA text in a module compiled for a cuda target (`build_jit`'s result or TVM's own module).

    Raises ValueError when it holds none.
    """
    if not isinstance(
        module, tvm.runtime.Module
    ):  # which, asked for an attribute, would look among its functions, and compile the host's
        module = module.module
    texts = [
        part.inspect_source() for part in module.imports if part.kind == "cuda" or "__global__" in part.inspect_source()
    ]
    if not texts:
        raise ValueError(f"a module of kind {module.kind!r} without CUDA code; compile it for cuda_target(...)")
    return "\n".join(texts)


@contextlib.contextmanager
def own_compile_callback(arch: str) -> Iterator[None]:
    """While open, TVM compiles CUDA source by `compile_cuda`: where the machine has a GPU it does so within a build.

    TVM's own callback, which uses fast-math, is put back afterwards, so that other users of TVM in this process keep
    it. A BuildError comes out as it was raised, and not as what TVM makes of it on the way.
    """
    with _callback_lock:
        original = tvm_ffi.get_global_func(_CALLBACK)
        failed: list[BuildError] = []

        def compile_source(source: str) -> bytes:
            try:
                return compile_cuda(str(source), arch, "cubin", default_compiler()).code
            except BuildError as error:
                failed.append(error)
                raise

        tvm_ffi.register_global_func(_CALLBACK, compile_source, override=True)
        try:
            yield
        except Exception:
            if failed:
                raise failed[0] from None
            raise
        finally:
            tvm_ffi.register_global_func(_CALLBACK, original, override=True)


def nvrtc_available() -> bool:
    """Whether NVRTC can be used: its library and the headers that it needs are there."""
    return not missing_for_nvrtc()


def default_compiler() -> str:
    """The compiler of CUDA source: NVRTC where it and headers are installed, which needs no toolkit, else nvcc;
    ``GSB_CUDA_COMPILER`` chooses. ValueError where that names none of ``COMPILERS``.
    """
    return CUDA_COMPILER.get() or ("nvrtc" if nvrtc_available() else "nvcc")


def compile_cuda(source: str, arch: str, format: str = "cubin", compiler: str = "nvcc") -> CudaBinary:
    """Compile CUDA source for one architecture, without fast-math; again with more registers where a kernel spills
    (`spills`), and where that is not enough with fewer optimisations that take them, and with half the threads; of all,
    what spills least.

    Parameters
    ----------
    source : CUDA C++ text.
    arch : "sm_80", "sm_90", "sm_90a", ...
    format : "cubin" (machine code, with statistics) or "ptx" (text; NVRTC ends it with a null byte).
    compiler : "nvcc" (a toolkit on this machine, 0.6 s and more) or "nvrtc" (``pip install 'gnn-sparse-backend[cuda]'``
        brings it and headers; the toolkit has both too).

    Raises
    ------
    ValueError for an unknown format, compiler or architecture; BuildError, which names the kernel and keeps the source,
    when there is no such compiler or it refuses the source.
    """
    _check_arch(arch)
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is unknown; use one of {', '.join(FORMATS)}")
    if compiler not in COMPILERS:
        raise ValueError(f"compiler {compiler!r} is unknown; use one of {', '.join(COMPILERS)}")
    kernel = ", ".join(dict.fromkeys(re.findall(r"__global__[^;{]*?(\w+)\s*\((?!\d)", source))) or "?"
    once = _nvcc if compiler == "nvcc" else _nvrtc
    binaries = []
    for level, threads in ATTEMPTS:
        eased: str | None = source
        while eased is not None:
            source = eased
            code, log = once(source, arch, format, kernel, level)
            statistics = parse_ptxas(log)
            eased = with_more_room(source, statistics, threads)
        binaries.append(CudaBinary(code, format, arch, statistics))
        if not spilled_bytes(statistics):
            break
    return min(binaries, key=lambda binary: spilled_bytes(binary.statistics))


def _flags(level: int) -> tuple[str, ...]:
    """What nvcc and NVRTC are both given."""
    return "-std=c++17", "--ptxas-options=-v", f"--ptxas-options=--register-usage-level={level}"


def _nvcc(source: str, arch: str, format: str, kernel: str, level: int) -> tuple[bytes, str]:
    nvcc = nvcc_path()
    if nvcc is None:
        raise BuildError(
            kernel,
            "no nvcc on PATH, in $CUDA_HOME or in /usr/local/cuda; install the CUDA toolkit, or use compiler='nvrtc'",
            source,
        )
    with tempfile.TemporaryDirectory(prefix="gsb-") as scratch:
        text, binary = Path(scratch, "kernel.cu"), Path(scratch, f"kernel.{format}")
        text.write_text(source)
        options = ["-O3", f"-arch={arch}", *_flags(level), "--expt-relaxed-constexpr", "-diag-suppress=177"]
        command = [nvcc, f"--{format}", *options, str(text), "-o", str(binary)]
        done = subprocess.run(command, capture_output=True, text=True)
        log = done.stdout + done.stderr
        if done.returncode:
            raise BuildError(kernel, f"{nvcc} for {arch} failed:\n{log.strip()}", source)
        return binary.read_bytes(), log


def _nvrtc(source: str, arch: str, format: str, kernel: str, level: int) -> tuple[bytes, str]:
    missing = missing_for_nvrtc()
    if missing:
        raise BuildError(kernel, f"NVRTC cannot be used: {'; '.join(missing)}; {INSTALL} brings all of it", source)
    virtual = arch if format == "cubin" else arch.replace("sm_", "compute_")
    options = [f"-arch={virtual}", *_flags(level), "-default-device", *(f"-I{folder}" for folder in include_folders())]
    try:
        return run_nvrtc(source, options, format)
    except NvrtcError as error:
        raise BuildError(kernel, f"NVRTC for {arch}: {error}", source) from error


def _check_arch(arch: str) -> None:
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise ValueError(f"architecture {arch!r} is not of the form 'sm_90'")
