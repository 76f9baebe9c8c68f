"""NVRTC, NVIDIA's compiler as a library, called without bindings: PyTorch pins a version of theirs, which need not be
CUDA 13's.

Nothing of it needs a GPU or a driver.
"""

from __future__ import annotations

import ctypes
import functools

from .nvidia import NVRTC, find_library, missing_headers

_RESULTS = {"cubin": ("nvrtcGetCUBINSize", "nvrtcGetCUBIN"), "ptx": ("nvrtcGetPTXSize", "nvrtcGetPTX")}


class NvrtcError(RuntimeError):
    """NVRTC refused something; the text has its log."""


def missing_for_nvrtc() -> list[str]:
    """What keeps NVRTC from compiling here, in words; empty for nothing."""
    if not find_library(NVRTC):
        missing = [f"{NVRTC} (nvidia-cuda-nvrtc) is not found"]
    elif not find_library(_builtins()):
        missing = [f"{_builtins()} (nvidia-cuda-nvrtc) is not found beside {NVRTC}"]
    else:
        missing = []
    headers = missing_headers()
    return missing + ([f"headers are not found: {', '.join(headers)}"] if headers else [])


def nvrtc_version() -> str:
    """The version of the library, "13.0"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "asking for its version")
    return f"{major.value}.{minor.value}"


def _builtins() -> str:
    """The library that NVRTC loads by its name when it compiles: that of CUDA 13.0 does not look beside itself, and
    finds what is loaded already."""
    return f"libnvrtc-builtins.so.{nvrtc_version()}"


def run_nvrtc(source: str, options: list[str], format: str) -> tuple[bytes, str]:
    """(code, log) of a source. format: "cubin" or "ptx", which ends with a null byte. Raises NvrtcError."""
    library, program = _library(), ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None),
        "creating the program",
    )
    try:
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        code = library.nvrtcCompileProgram(program, len(options), arguments)
        log = _read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0 ").decode(errors="replace")
        _check(code, "compiling", log)
        return _read(program, *_RESULTS[format]), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, size_of: str, fill: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(_library(), size_of)(program, ctypes.byref(size)), "reading its output")
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(_library(), fill)(program, buffer), "reading its output")
    return buffer.raw


def _check(code: int, what: str, log: str = "") -> None:
    if code:
        raise NvrtcError(f"{what} failed: {_library().nvrtcGetErrorString(code).decode()}\n{log}")


@functools.cache
def _library() -> ctypes.CDLL:
    library = find_library(NVRTC)
    if library is None:
        raise NvrtcError(f"{NVRTC} is not found")
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library
