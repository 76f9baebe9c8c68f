"""What NVIDIA's driver says of itself and of its GPUs, asked without PyTorch."""

from __future__ import annotations

import ctypes

from ....frozen import dataclass
from .nvidia import DRIVER, find_library

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


class DriverError(RuntimeError):
    """The driver answered with an error."""


@dataclass(frozen=True)
class Device:
    """A GPU: its name, and its compute architecture, "sm_90"."""

    name: str
    arch: str


def driver_version() -> tuple[int, int]:
    """The latest version of CUDA that the driver works with, (13, 0). Raises DriverError, also of a stub."""
    version = ctypes.c_int()
    _call("cuDriverGetVersion", ctypes.byref(version))
    return split(version.value)


def devices() -> list[Device]:
    """The GPUs that the driver shows to this process. Raises DriverError, where there is none too."""
    count = ctypes.c_int()
    _call("cuInit", 0)
    _call("cuDeviceGetCount", ctypes.byref(count))
    return [_device(number) for number in range(count.value)]


def _device(number: int) -> Device:
    handle, name, numbers = ctypes.c_int(), ctypes.create_string_buffer(256), (ctypes.c_int * 2)()
    _call("cuDeviceGet", ctypes.byref(handle), number)
    _call("cuDeviceGetName", name, 256, handle)
    for place, attribute in enumerate((_MAJOR, _MINOR)):
        _call("cuDeviceGetAttribute", ctypes.byref(numbers, place * ctypes.sizeof(ctypes.c_int)), attribute, handle)
    return Device(name.value.decode(errors="replace"), f"sm_{numbers[0]}{numbers[1]}")


def split(version: int) -> tuple[int, int]:
    """(13, 0) of 13000, as the driver and the runtime write it."""
    return version // 1000, version % 1000 // 10


def _call(name: str, *arguments: object) -> None:
    library = find_library(DRIVER)
    function = getattr(library, name, None)
    if library is None or function is None:
        raise DriverError(f"{DRIVER} has no {name}" if library else f"{DRIVER} is not found")
    code = function(*arguments)
    if code:
        raise DriverError(f"{name} answers with error {code}{_words(library, code)}")


def _words(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    describe = getattr(library, "cuGetErrorString", None)
    return f", {text.value.decode()}" if describe and not describe(code, ctypes.byref(text)) and text.value else ""
