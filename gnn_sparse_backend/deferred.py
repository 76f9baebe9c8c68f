"""Import what takes long when something of it is first used: TVM, rich, SciPy's sparse tools, locks of files; and
modules of this package that a package names as its own (`names_of`).

TVM takes seconds and hundreds of megabytes, and a process whose kernels are all in the cache needs none of its
modules. So no module of this package imports TVM: they take its parts from here, and use them in functions alone. What
a kernel needs to run is in TVM's libraries, which are loaded without its modules (`global_function`).
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = [
    "can_compile",
    "compilation_pipeline",
    "console",
    "cuda_op",
    "filelock",
    "global_function",
    "import_module",
    "ir",
    "ir_builder",
    "keep_tvm_ffi_from_building",
    "later",
    "load_devices",
    "load_libraries",
    "load_runtime",
    "names_of",
    "no_collection",
    "s_tir",
    "sparse_tools",
    "sym",
    "table",
    "tir_builder",
    "tirx",
    "tirx_buffer",
    "tvm",
]


_NO_EXTENSION = "TVM_FFI_DISABLE_TORCH_C_DLPACK"


class _NoCollection:
    """A context without automatic collections of garbage, which may be entered within itself and by several threads.

    Modules are made of objects that stay, and Python takes the number of these for a reason to look through all objects
    of a process, those of PyTorch among them, for 0.15 s: as long as the imports take. What was switched off before
    stays off.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth, self._collecting = 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._depth:
                self._collecting = gc.isenabled()
                gc.disable()
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth and self._collecting:
                gc.enable()


no_collection = _NoCollection()


def import_module(name: str, package: str | None = None) -> ModuleType:
    """``importlib.import_module`` with `no_collection`: for what is imported late, much of this package at once."""
    with no_collection:
        if name.partition(".")[0] == "tvm":
            _keep_tvm_from_building()
            _import_tvm()
        return importlib.import_module(name, package)


class _Later(ModuleType):
    """A module that is imported when one of its names is asked for, which is kept."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


class _LaterOfDevices(_Later):
    """A module of TVM that has some names once what TVM knows of GPUs is loaded (`load_devices`)."""

    def __getattr__(self, name: str) -> Any:
        if not hasattr(import_module(self.__name__), name):
            load_devices()
        return super().__getattr__(name)


class _Own(ModuleType):
    """A module of this package that is imported when one of its names is asked for. Names are looked up in it each
    time: whoever replaces one there replaces it here.
    """

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("_found")
        if found is None:
            found = self.__dict__["_found"] = import_module(self.__name__)
        return getattr(found, name)


def later(module: str, name: str) -> Any:
    """The neighbour ``name`` of a module, imported when something of it is first used: what a GPU alone needs.

    if TYPE_CHECKING:
        from . import schedules_cuda
    else:
        schedules_cuda = later(__name__, ".schedules_cuda")
    """
    return _Own(importlib.util.resolve_name(name, module.rpartition(".")[0]))


def names_of(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a package that imports each of its names when it is first used
    (PEP 562).

        __getattr__, __dir__ = names_of(__name__, {".cpu.host": "host_target", ".build": "build_shared load"})

    modules: which names come from a module, which may be relative.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})


if TYPE_CHECKING:
    import ctypes

    import filelock
    import tvm
    import tvm_ffi
    from rich import console as console
    from rich import table as table
    from tvm import ir, s_tir, sym, tirx
    from tvm.backend.cuda import op as cuda_op
    from tvm.script import ir_builder as ir_builder
    from tvm.tirx import buffer as tirx_buffer
    from tvm.tirx import compilation_pipeline
    from tvm.tirx.script import builder as tir_builder
else:
    tvm, ir, s_tir, sym, tirx = map(_Later, ("tvm", "tvm.ir", "tvm.s_tir", "tvm.sym", "tvm.tirx"))
    cuda_op, tirx_buffer = _Later("tvm.backend.cuda.op"), _Later("tvm.tirx.buffer")
    ir_builder, tir_builder = _Later("tvm.script.ir_builder"), _LaterOfDevices("tvm.tirx.script.builder")
    compilation_pipeline = _Later("tvm.tirx.compilation_pipeline")
    console, table, filelock = _Later("rich.console"), _Later("rich.table"), _Later("filelock")


def keep_tvm_ffi_from_building() -> None:
    """Have tvm_ffi take tensors as they are of a PyTorch before 2.10, for which it would build an extension in C++ when
    it is imported: for half a minute with a compiler, for two warnings without. ``pip install torch-c-dlpack-ext``
    brings that extension, which takes a few microseconds from each operand; ``TVM_FFI_DISABLE_TORCH_C_DLPACK=0`` lets
    it be built.
    """
    if importlib.util.find_spec("torch_c_dlpack_ext") is None:
        os.environ.setdefault(_NO_EXTENSION, "1")


@functools.cache
def _keep_tvm_from_building() -> None:
    """Have TVM build no extension either, whose module for Relax asks for it whatever the variable says."""
    if os.environ.get(_NO_EXTENSION) == "1":
        try:
            optional: Any = importlib.import_module("tvm_ffi._optional_torch_c_dlpack")
        except ImportError:  # another version, which has none
            return
        optional.load_torch_c_dlpack_extension = lambda: None


_NO_KERNELS = ("tvm.relax", "tvm.runtime.disco", "tvm.s_tir.dlight", "tvm.s_tir.meta_schedule")
"""What TVM imports of itself and compiles no kernel: its language for whole models, processes on several devices, ready
schedules, and its search for schedules. The import of that for devices fails, and TVM goes on without it: what the
error says of C++ takes a second.
"""
_NO_DEVICES = "TVM_DEVICE_BACKEND_AUTOLOAD"


@functools.cache
def _import_tvm() -> None:
    """Import TVM, where nobody has, without what it knows of GPUs (`load_devices`), three quarters of the time, and
    with `_NO_KERNELS` for later: they are imported when something of them is asked for.
    """
    package = None if "tvm" in sys.modules else importlib.util.find_spec("tvm")
    if package is None or package.origin is None:
        return
    for name in _NO_KERNELS:
        _, *within, _ = name.split(".")
        spec = PathFinder.find_spec(name, [str(Path(package.origin).parent.joinpath(*within))])
        if spec is not None:
            sys.modules.setdefault(name, _later_part(spec))
    given = os.environ.get(_NO_DEVICES)
    os.environ[_NO_DEVICES] = given or "0"
    try:
        importlib.import_module("tvm")
    finally:
        if given is None:
            del os.environ[_NO_DEVICES]
    importlib.import_module("tvm.s_tir")  # which names the passes that compile, and which that language imports
    script: Any = importlib.import_module("tvm.script")
    script.register_dialect("relax", "tvm.relax.script")  # which that module does


class _Part(ModuleType):
    """A module of a package, known to Python, whose code is run when a name of it is first asked for. The path to what
    is below it is such a name: whoever imports that has the module first.
    """

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        assert spec is not None and spec.loader is not None
        self.__class__ = ModuleType  # type: ignore[assignment]  # a name that is still missing meanwhile is an error
        self.__path__ = spec.submodule_search_locations or []
        try:
            with no_collection:
                spec.loader.exec_module(self)
        except BaseException:
            del self.__path__
            self.__class__ = _Part
            raise
        return getattr(self, name)


def _later_part(spec: ModuleSpec) -> ModuleType:
    """The module of a package's spec, its code not run yet."""
    module = importlib.util.module_from_spec(spec)
    del module.__path__
    module.__class__ = _Part
    return module


@functools.cache
def sparse_tools() -> Any:
    """SciPy's compiled functions on sparse matrices, without ``scipy.sparse``, which imports all of NumPy for a tenth
    of a second.
    """
    name = "scipy.sparse._sparsetools"
    package = importlib.util.find_spec("scipy")
    assert package is not None and package.origin is not None
    spec = PathFinder.find_spec(name.rpartition(".")[2], [str(Path(package.origin).with_name("sparse"))])
    if name in sys.modules or spec is None:
        return import_module(name)
    return _from_file(spec)


def load_runtime() -> ctypes.CDLL:
    """Load the library of TVM's runtime, all that a compiled kernel needs."""
    return _library("tvm_runtime", "RTLD_GLOBAL")


@functools.cache
def can_compile() -> bool:
    """Whether TVM is installed. Without it kernels come from packs alone."""
    try:
        return importlib.util.find_spec("tvm") is not None
    except ImportError:
        return False


def load_libraries() -> tuple[ctypes.CDLL, ...]:
    """Load the libraries of TVM's runtime and compiler, as TVM does when it is imported; in a twentieth of a second."""
    return load_runtime(), _library("tvm_compiler", "RTLD_LOCAL")


@functools.cache
def _library(name: str, mode: str) -> ctypes.CDLL:
    from tvm_ffi.libinfo import load_lib_ctypes

    package = importlib.util.find_spec("tvm")
    assert package is not None and package.origin is not None
    # a file that needs nothing of the package, and knows where its libraries are
    spec = importlib.util.spec_from_file_location("_tvm_libinfo", Path(package.origin).with_name("libinfo.py"))
    assert spec is not None
    libinfo = _from_file(spec)
    return load_lib_ctypes("tvm", name, mode, extra_lib_paths=libinfo.package_lib_paths())


def _from_file(spec: ModuleSpec) -> Any:
    """A module that needs nothing of its package, and is not in ``sys.modules``."""
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def global_function(name: str) -> tvm_ffi.Function:
    """A function of TVM's libraries by its name, without TVM's modules; that of the compiler is loaded where the
    runtime's has no such function.
    """
    import tvm_ffi

    load_runtime()
    found = tvm_ffi.get_global_func(name, allow_missing=True)
    if found is None:
        load_libraries()
        found = tvm_ffi.get_global_func(name)
    return found


def load_devices() -> None:
    """Have TVM build for GPUs of NVIDIA, and run code there: what it loads by itself where others import it."""
    backend: Any = import_module("tvm.backend")
    backend.load("cuda")
