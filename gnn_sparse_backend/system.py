"""What differs between operating systems: no other module of the package asks which one this is, or for what one of
them alone has.

Each function asks when it is called, and has an answer everywhere: None, 0 or nothing where a system lacks the thing.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LINUX, MACOS, WINDOWS = "linux", "darwin", "windows"
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}


# What this machine is


def name() -> str:
    """The system as LLVM's triples have it: "linux", "darwin" or "windows"; Python's word for any other."""
    return {"win32": WINDOWS}.get(sys.platform, sys.platform)


def architecture() -> str:
    """The processor as LLVM's triples for Linux have it: "x86_64" or "aarch64"."""
    return architecture_of(platform.machine())


def architecture_of(word: str) -> str:
    """One name for each architecture, whichever of its names a system or a triple uses."""
    return _ARCHITECTURES.get(word.lower(), word.lower())


def machine(system: str = "", processor: str = "") -> str:
    """What code is made for, by default this machine: the architecture, and the system where it is not Linux, as
    "aarch64" or "aarch64-darwin".
    """
    system, processor = system or name(), processor or architecture()
    return processor if system == LINUX else f"{processor}-{system}"


def identity() -> str:
    """Python's own words for system and processor, which keys of what is kept contain."""
    return f"{sys.platform}-{platform.machine()}"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> tuple[int, int]:
    """Bytes of memory, and of what memory may be swapped out to. psutil takes longer to import than Linux to ask."""
    try:
        text = Path("/proc/meminfo").read_text()
        total, swap = (
            int(found[1]) << 10
            for name in ("MemTotal", "SwapTotal")
            if (found := re.search(rf"^{name}: *(\d+) kB$", text, re.M))
        )
    except (OSError, ValueError):  # another system, or one that says it otherwise
        import psutil

        return psutil.virtual_memory().total, psutil.swap_memory().total
    return total, swap


def process_memory() -> tuple[int, int, int]:
    """Bytes of this process that are in memory, those of them that show files, and the most there ever were; the last
    two are 0 where the system does not say.
    """
    try:
        text = Path("/proc/self/status").read_text()
        resident, files, peak = (
            int(found[1]) << 10
            for name in ("VmRSS", "RssFile", "VmHWM")
            if (found := re.search(rf"^{name}:\s*(\d+) kB$", text, re.M))
        )
    except (OSError, ValueError):  # another system, or one that says it otherwise
        import psutil

        found = psutil.Process().memory_info()
        return found.rss, 0, getattr(found, "peak_wset", 0)
    return resident, files, peak


def processor_model() -> str:
    """The processor's name in words."""
    if name() == MACOS and (brand := _sysctl("machdep.cpu.brand_string")):
        return brand.rstrip(b"\0").decode()
    lines = (line for line in cpuinfo().splitlines() if line.startswith("model name"))
    named = next((line.split(":", 1)[1].strip() for line in lines), "")
    return named or platform.processor() or platform.machine()


def cpuinfo() -> str:
    """What Linux says of the processors, "" elsewhere."""
    return "\n".join(_lines("/proc/cpuinfo")) if name() == LINUX else ""


def caches() -> dict[int, int]:
    """Bytes of the largest data cache of each level of a fast core; nothing where the system does not say."""
    if name() == MACOS:
        return _caches_of_macos()
    if name() == WINDOWS:
        return _caches_of_windows(_processor_information())
    sizes: dict[int, int] = {}
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", "".join(_lines(entry)).strip())
        level = "".join(_lines(entry.with_name("level"))).strip()
        if match and level.isdecimal():
            sizes[int(level)] = max(sizes.get(int(level), 0), int(match[1]) * _UNITS[match[2]])
    return sizes


def _caches_of_macos() -> dict[int, int]:
    """Apple's processors name the fast cores' caches first, Intel's have one kind of core."""
    found = {}
    for level, key in ((1, "l1dcachesize"), (2, "l2cachesize"), (3, "l3cachesize")):
        value = _sysctl(f"hw.perflevel0.{key}") or _sysctl(f"hw.{key}")
        if size := int.from_bytes(value, sys.byteorder):
            found[level] = size
    return found


def _sysctl(key: str) -> bytes:
    """A value of the kernel of macOS; nothing where it has no such key."""
    size = ctypes.c_size_t(0)
    ask = this_process().sysctlbyname
    if ask(key.encode(), None, ctypes.byref(size), None, 0):
        return b""
    value = ctypes.create_string_buffer(size.value)
    return b"" if ask(key.encode(), value, ctypes.byref(size), None, 0) else value.raw[: size.value]


_CACHE, _INSTRUCTIONS, _RECORD = 2, 1, 32
"""Values in a ``SYSTEM_LOGICAL_PROCESSOR_INFORMATION``: the relation of caches, and the type of those for code alone;
and the bytes of one."""


def _caches_of_windows(records: bytes) -> dict[int, int]:
    """records: mask of processors (8 bytes), relation (4), 4 of padding, and of a cache level (1), ways (1), bytes of a
    line (2), size (4), type (4).
    """
    found: dict[int, int] = {}
    for at in range(0, len(records) - _RECORD + 1, _RECORD):
        relation = int.from_bytes(records[at + 8 : at + 12], "little")
        size, kind = (int.from_bytes(records[at + begin : at + begin + 4], "little") for begin in (20, 24))
        if relation == _CACHE and kind != _INSTRUCTIONS:
            level = records[at + 16]
            found[level] = max(found.get(level, 0), size)
    return found


def _processor_information() -> bytes:
    ask = ctypes.WinDLL("kernel32").GetLogicalProcessorInformation  # type: ignore[attr-defined]
    size = ctypes.c_ulong(0)
    ask(None, ctypes.byref(size))
    records = ctypes.create_string_buffer(size.value)
    return records.raw[: size.value] if ask(records, ctypes.byref(size)) else b""


# What a process may ask its processor for

_HWCAP, _HWCAP2 = 16, 26
_SVE_LENGTH, _LENGTH_MASK = 51, 0xFFFF
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18
_ARM_BITS = {
    _HWCAP: {
        **{"fp": 0, "asimd": 1, "crc32": 7, "atomics": 8, "asimdhp": 10, "asimdrdm": 12, "jscvt": 13, "fcma": 14},
        **{"lrcpc": 15, "asimddp": 20, "sve": 22, "asimdfhm": 23},
    },
    _HWCAP2: {"sve2": 1, "i8mm": 13, "bf16": 14},
}
"""Bits of words of the auxiliary vector, by Linux's names of what an Arm processor can do (its header hwcap.h)."""


def processor_flags() -> frozenset[str]:
    """What the processor can do and this process may use, in Linux's spelling; nothing where the system does not say.

    The kernel tells it to each process on Arm, and in a file on x86.
    """
    if name() != LINUX:
        return frozenset()
    if architecture() != "aarch64":
        named = (line.split(":", 1)[1] for line in cpuinfo().splitlines() if line.startswith("flags"))
        return frozenset(next(named, "").split())
    ask = this_process().getauxval
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    return frozenset(flag for word, bits in _ARM_BITS.items() for flag, bit in bits.items() if ask(word) >> bit & 1)


def sve_bytes() -> int:
    """Bytes of a register of Arm's scalable vectors in this process; 0 without them."""
    if name() != LINUX or architecture() != "aarch64":
        return 0
    length = int(this_process().prctl(_SVE_LENGTH))
    return length & _LENGTH_MASK if length > 0 else 0


def may_use_tiles() -> bool:
    """Whether this process may use the tile registers of AMX. Linux has them for processes that ask, which this does.

    Threads and forks of the process may use them then, too.
    """
    if name() != LINUX or architecture() != "x86_64":
        return False
    return bool(this_process().syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0)


# Memory

MEMORY_FOLDER = "/dev/shm"
"""Where Linux has a folder in memory; other systems have none of the name."""


def maps_memory() -> bool:
    """Whether a process gets private memory of its own from the system, and gives it back."""
    return hasattr(mmap, "MAP_PRIVATE")


def map_file(number: int) -> mmap.mmap:
    """An open file's bytes as memory of which no more is read than is asked for, where the system can be told so; who
    writes to it writes to copies.
    """
    mapped = mmap.mmap(number, 0, access=mmap.ACCESS_COPY)
    if hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def reads_at_places() -> bool:
    """Whether several threads may read a file at places of their own, into memory of their own (``os.preadv``)."""
    return hasattr(os, "preadv")


def map_memory(size: int) -> mmap.mmap:
    """Private memory, of huge pages where the system has them. Raises OSError where there is no more of it."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: a hint the less
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


def has_known_allocator() -> bool:
    """Whether a class of C++ lies in memory as the code that replaces PyTorch's allocator has it."""
    return name() == LINUX and architecture() in ("x86_64", "aarch64")


# Files


def file_in_memory(label: str) -> int | None:
    """The descriptor of an empty file in memory, without a name; None where the system has none."""
    try:
        return os.memfd_create(label, os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux, or not allowed
        return None


def path_of(descriptor: int, process: int | str = "self") -> str:
    """Where Linux has the open files of a process."""
    return f"/proc/{process}/fd/{descriptor}"


def runs_code_from(folder: Path) -> bool:
    """Whether the file system of a folder lets code be run from it, as far as the system says."""
    return not hasattr(os, "ST_NOEXEC") or not os.statvfs(folder).f_flag & os.ST_NOEXEC


def user() -> int | None:
    """The number of the user that this process runs as; None where files have no owners by number, as on Windows, where
    the folders of a user's profile are private, and what is said of modes is made up.
    """
    return os.geteuid() if hasattr(os, "geteuid") else None


# Processes


def after_fork(function: Callable[[], object]) -> None:
    """Call a function in each child that this process forks, where processes do."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def has_developer_tools(command: str) -> bool:
    """Whether a compiler of this path does what it is asked: Apple's system has programs of these names that ask for an
    installation where there is none.
    """
    if name() != MACOS or not command.startswith("/usr/bin/"):
        return True
    with contextlib.suppress(OSError):
        return not subprocess.run(["xcode-select", "-p"], capture_output=True).returncode
    return False


# Libraries of this process

_SUFFIX = {MACOS: ".dylib"}


def this_process() -> Any:
    """The names that this process has."""
    return ctypes.CDLL(None)


def open_loaded(library: str) -> list[Any] | None:
    """Handles in which names of a library are looked up that this process has loaded, ``torch_cpu`` say, and of what it
    is linked to; None where it is not loaded, or the system does not tell.

    The program's own names come first in the dynamic linker's order, and so they do here.
    """
    ending = f"/lib{library}{_SUFFIX.get(name(), '.so')}"
    path = next((path for path in _loaded() if path.endswith(ending)), None)
    return None if path is None else [this_process(), ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)]


def _loaded() -> Iterator[str]:
    """The files of the libraries of this process, and on Linux of what else is mapped."""
    if name() == MACOS:
        images = this_process()
        at = images._dyld_get_image_name
        at.restype = ctypes.c_char_p
        for number in range(images._dyld_image_count()):
            yield (at(number) or b"").decode()
    elif name() == LINUX:
        yield from (line[line.index("/") :] for line in _lines("/proc/self/maps") if "/" in line)


class _Found(ctypes.Structure):
    """``Dl_info``: the file and the address where it begins, a name and its address."""

    _fields_ = [
        *(("file", ctypes.c_char_p), ("begin", ctypes.c_void_p)),
        *(("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)),
    ]


def library_at(address: int) -> str:
    """The file that a function of this process was loaded from."""
    found = _Found()
    look = getattr(this_process(), "dladdr", None)
    if look is None or not look(ctypes.c_void_p(address), ctypes.byref(found)) or not found.file:
        return "unknown library"
    return os.fsdecode(found.file)


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
