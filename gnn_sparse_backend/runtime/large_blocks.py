"""PyTorch's CPU allocator with the memory of freed large tensors kept for the next ones.

PyTorch lets a program put another allocator in the place of its own (``c10::SetCPUAllocator``). This one hands small
requests to the one that was there, and serves large ones from blocks of huge pages, which it keeps when a tensor dies
and finds again by their size. What is in use and what is kept together stay within nine eighths of the most that was
ever in use at a time, or, where memory is scarce, within that itself: before a block would go beyond, those that have
waited longest go back to the system.

It is machine code (`large_blocks_code`), for tensors are made in threads that know no Python, and has no locks, so
that a child forked at any moment can go on. An allocator is a C++ object, and PyTorch does not promise how its classes
lie in memory. So the class is read in the header that PyTorch's wheel carries, and what the allocator in use returns is
looked at, before anything is replaced; where either is not as it is known, `blocks` is None.
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path

import torch

from ..compiler.codegen.cpu.launcher import NativeText, load_text
from ..system import has_known_allocator, this_process
from .accounts import account
from .large_blocks_code import CODE

LEAST = 4 << 20
"""Bytes from which a tensor is a large one, as the code has it. Below, the C library keeps freed memory by itself, and
the pages of a tensor are few enough for a processor to remember where they are.
"""

LARGE_BLOCKS = NativeText("large_blocks", CODE)
_ADDRESSES = (
    "allocate",
    "allocator",
    "delete",
    "mmap",
    "munmap",
    "madvise",
    "reporter",
    "report_new",
    "report_delete",
)
_VIRTUAL = ("~Allocator", "allocate", "is_simple_data_ptr", "raw_deleter", "copy_data")
# In the table of virtual functions: two entries of the type come first, and then two of the destructor.
_FIRST, _ALLOCATE, _RAW_DELETER, _LENGTH = 2, 4, 6, 8


_CPU = -256  # a device's type, 0, and its number, -1: a byte each


class _State(ctypes.Structure):
    """The ``%State`` of the text. limit: bytes to keep at most. used, kept, most: bytes in tensors, waiting, and the
    most that were in tensors at a time. spare: the part of that which is kept beyond it, as a shift to the right.
    """

    _fields_ = [(name, ctypes.c_void_p) for name in _ADDRESSES] + [
        (name, ctypes.c_int64) for name in ("limit", "used", "kept", "most", "clock", "spare")
    ]


class _DataPtr(ctypes.Structure):
    """``c10::DataPtr``, as libstdc++ lays its unique_ptr out."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("data", "delete", "context")] + [("device", ctypes.c_int16)]


EIGHTH, NOTHING = 3, 63
"""Values of ``%State``'s spare."""


class Blocks:
    """The allocator. Once in its place it stays there, and `use` says whether it serves anything by itself: DGL gives
    memory back to whichever allocator is there at that time.
    """

    def __init__(self, libc10: ctypes.CDLL, default: int):
        libc = this_process()
        table = _table_of(default)
        module = load_text(LARGE_BLOCKS)
        self._state = state = _State.from_address(module.get_function("gsb_blocks_state")())
        state.allocate, state.allocator, state.delete = table[_ALLOCATE], default, _deleter(default)
        for name in ("mmap", "munmap", "madvise"):
            setattr(state, name, _address(getattr(libc, name)))
        state.reporter = _returning_pointer(libc10, _REPORTER)()
        state.report_new, state.report_delete = _address(libc10[_REPORT_NEW]), _address(libc10[_REPORT_DELETE])
        table[_ALLOCATE] = module.get_function("gsb_blocks_allocate_address")()
        table[_RAW_DELETER] = module.get_function("gsb_blocks_raw_deleter_address")()
        own = (ctypes.c_void_p * len(table))(*table)
        instance = ctypes.c_void_p(ctypes.addressof(own) + _FIRST * ctypes.sizeof(ctypes.c_void_p))
        self._default, self._own = default, ctypes.addressof(instance)
        self._evict = ctypes.CFUNCTYPE(ctypes.c_int32)(module.get_function("gsb_blocks_evict_address")())
        self._get, self._set = _returning_pointer(libc10, _GET), libc10[_SET]
        self._set.argtypes, self._set.restype = (ctypes.c_void_p, ctypes.c_uint8), None
        for each in (module, own, instance):  # tensors die after the interpreter
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))

    def use(self, limit: int, scarce: bool = False) -> bool:
        """Serve large tensors, and keep at most ``limit`` bytes for later ones; 0 serves none. scarce: memory is.

        Returns whether that could be done: not where somebody else has put an allocator in the place of PyTorch's.
        """
        if self._get() not in (self._own, self._default):
            return False
        self._state.limit, self._state.spare = limit, NOTHING if scarce else EIGHTH
        if limit:
            self._set(self._own, 0)
        else:
            self.clear()
        return True

    @property
    def in_use(self) -> bool:
        """Whether large tensors come from here now."""
        return bool(self._state.limit) and self._get() == self._own

    @property
    def kept(self) -> int:
        """Bytes that wait for the next tensor."""
        return self._state.kept

    @property
    def used(self) -> int:
        """Bytes of large tensors that are alive."""
        return self._state.used

    @property
    def most(self) -> int:
        """The most bytes of large tensors that were alive at a time."""
        return self._state.most

    def clear(self) -> None:
        """Give everything that waits back to the system."""
        while self._evict():
            pass


_GET, _SET = "_ZN3c1015GetCPUAllocatorEv", "_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh"
_GET_DEFAULT, _REPORTER = "_ZN3c1022GetDefaultCPUAllocatorEv", "_ZN3c1025profiledCPUMemoryReporterEv"
_REPORT_NEW = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm"
_REPORT_DELETE = "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv"


@functools.cache
def blocks() -> Blocks | None:
    """The allocator of this process; None where PyTorch, or the machine, is not as it is known here."""
    if not has_known_allocator():
        return None
    if _virtual_functions() != _VIRTUAL:
        return None
    try:
        libc10 = ctypes.CDLL("libc10.so")
        for name in (_GET, _SET, _GET_DEFAULT, _REPORTER, _REPORT_NEW, _REPORT_DELETE):
            libc10[name]
    except (OSError, AttributeError):
        return None
    default = _returning_pointer(libc10, _GET_DEFAULT)()
    return Blocks(libc10, default) if _is_known(libc10, default) else None


def in_use() -> bool:
    """Whether large tensors come from the blocks now. Makes no code."""
    made = blocks() if blocks.cache_info().currsize else None
    return made is not None and made.in_use


def clear() -> None:
    """Give the blocks that wait back to the system."""
    if blocks.cache_info().currsize and (made := blocks()) is not None:
        made.clear()


@account("memory of freed tensors, for the next ones (gsb.reuse_memory)")
def _kept() -> int:
    made = blocks() if blocks.cache_info().currsize else None
    return 0 if made is None else made.kept


def _virtual_functions() -> tuple[str, ...]:
    """Names of the virtual functions of ``c10::Allocator``, in order, as its header has them."""
    header = Path(torch.__file__).parent / "include/c10/core/Allocator.h"
    try:
        text = header.read_text()
    except OSError:
        return ()
    body = text.partition("struct C10_API Allocator {")[2].partition("\n};")[0]
    return tuple(re.findall(r"virtual\s[^(;]*?(~?\w+)\(", body))


def _is_known(libc10: ctypes.CDLL, default: int) -> bool:
    """Whether PyTorch's allocator is in use, and what it has given to a tensor lies where it is looked for."""
    if _returning_pointer(libc10, _GET)() != default:
        return False
    storage = torch.empty(64).untyped_storage()
    # behind a table and two counters
    words = (ctypes.c_void_p * 8).from_address(storage._cdata)
    if storage.data_ptr() not in list(words):
        return False
    at = list(words).index(storage.data_ptr())
    found = _DataPtr.from_address(ctypes.addressof(words) + at * ctypes.sizeof(ctypes.c_void_p))
    return (found.context, found.delete, found.device) == (found.data, _deleter(default), _CPU)


def _table_of(allocator: int) -> list[int]:
    """What stands in an allocator's table of virtual functions."""
    first = ctypes.c_void_p.from_address(allocator).value
    return list((ctypes.c_void_p * _LENGTH).from_address(first - _FIRST * ctypes.sizeof(ctypes.c_void_p)))


def _deleter(allocator: int) -> int:
    raw_deleter = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_table_of(allocator)[_RAW_DELETER])
    return raw_deleter(allocator)


def _returning_pointer(library: ctypes.CDLL, name: str):
    function = library[name]
    function.restype = ctypes.c_void_p
    return function


def _address(function) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value
