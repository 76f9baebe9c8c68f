"""Faces: packages of this one that are given for the public name of another library, so that programs which import it
run where it is not installed, or without it.

A face that is enabled answers ``import MinkowskiEngine``, of its submodules, too, and stands before an installed
library of that name. Its package has the library's names. It may have ``MODULES``, a table from public submodules to
its own, for those whose names differ ("" for the package itself), and has ``__version__``, which
``importlib.metadata`` gives. While it is enabled, its classes have the public module, which their pickles name.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ....deferred import import_module
from ..patch import Patches, globals_among, put_back


class Face(NamedTuple):
    """Our package. beside: what the names of modules begin with that the library has beside its own package; those are
    in ``MODULES``. functions: whether the library is one of functions, which are replaced where it is imported already.
    """

    package: str
    beside: str = ""
    functions: bool = False


FACES = {
    "MinkowskiEngine": Face("gnn_sparse_backend.integrations.minkowski", beside="Minkowski"),
    "pyg_lib": Face("gnn_sparse_backend.integrations.pyg_lib"),
    "torch_cluster": Face("gnn_sparse_backend.integrations.torch_cluster", functions=True),
    "torch_scatter": Face("gnn_sparse_backend.integrations.torch_scatter", functions=True),
    "torch_sparse": Face("gnn_sparse_backend.integrations.torch_sparse"),
    "torch_spline_conv": Face("gnn_sparse_backend.integrations.torch_spline_conv", functions=True),
    "torchsparse": Face("gnn_sparse_backend.integrations.torchsparse"),
}
"""Our packages, by the public names that they are given for."""


class PublicModule(ModuleType):
    """A module by its public name, whose names are those of one of ours."""

    _ours: ModuleType

    def __getattr__(self, name: str) -> Any:
        if name == "_ours":  # not executed yet
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            return getattr(self._ours, name)
        except AttributeError:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r} in gnn_sparse_backend, which stands for it: "
                "docs/howto has a page that lists what it has"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        # an import of a submodule sets it on its package, where a class of the same name may be
        if not isinstance(value, PublicModule) or isinstance(getattr(self, name, value), ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._ours)})


class _Loader(importlib.abc.Loader):
    def __init__(self, ours: str, patches: Patches) -> None:
        self.ours, self.patches = ours, patches

    def create_module(self, spec: ModuleSpec) -> PublicModule:
        return PublicModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        ours = import_module(self.ours)
        module.__dict__["_ours"] = ours
        for name in dir(ours):
            value = getattr(ours, name)
            if isinstance(value, type) and value.__name__ == name and value.__module__.startswith(self.ours):
                self.patches.set(value, "__module__", module.__name__)


class _Distribution(importlib.metadata.Distribution):
    """What ``importlib.metadata`` knows of a face."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        version = import_module(FACES[self._name].package).__version__
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {version}\n"

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / path


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the faces that are given."""

    def __init__(self) -> None:
        self.given: dict[str, Patches] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        name, _, below = fullname.partition(".")
        if name not in self.given:
            name = next((face for face in self.given if name.startswith(FACES[face].beside or " ")), "")
            below = fullname
        if not name:
            return None
        package = FACES[name].package
        ours = package
        if below:
            modules: Mapping[str, str] = getattr(import_module(package), "MODULES", {})
            if below == fullname and below not in modules:
                return None
            ours = f"{package}.{modules.get(below, below)}".rstrip(".")
        found = importlib.util.find_spec(ours)
        if found is None:
            return None
        return ModuleSpec(fullname, _Loader(ours, self.given[name]), is_package=bool(found.submodule_search_locations))

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        wanted = getattr(context, "name", None)
        for name in self.given:
            if wanted is None or _normal(wanted) == _normal(name):
                yield _Distribution(name)


_finder = _Finder()


class _Replaced:
    """The functions of an imported library, which are ours until `undo`."""

    def __init__(self, library: ModuleType, ours: ModuleType) -> None:
        both = ((getattr(library, name, None), getattr(ours, name)) for name in ours.__all__)
        self.functions: dict[Callable, Callable] = {
            theirs: each for theirs, each in both if isinstance(theirs, FunctionType) and isinstance(each, FunctionType)
        }
        self.patches = Patches()
        for module, name, function in globals_among(self.functions):
            self.patches.set(module, name, self.functions[function])

    def undo(self) -> None:
        """Put the functions back, in modules that were imported since, too."""
        self.patches.undo()
        put_back({ours: function for function, ours in self.functions.items()})


_replaced: dict[str, _Replaced] = {}


def give(name: str) -> None:
    """Give our package for a public name. Where the library itself is imported already, its functions become ours, in
    whatever module; ImportError is raised where it has more than functions.
    """
    if name in sys.modules:
        if not FACES[name].functions:
            raise ImportError(
                f"cannot enable {name!r}: the library itself is imported; enable it before the first import of {name}"
            )
        _replaced[name] = _Replaced(sys.modules[name], import_module(FACES[name].package))
        return
    _finder.given[name] = Patches()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def take_away(name: str) -> None:
    """Give it no longer, and forget its modules. What somebody has imported goes on working."""
    if (replaced := _replaced.pop(name, None)) is not None:
        replaced.undo()
    patches = _finder.given.pop(name, None)
    if patches is None:
        return
    patches.undo()
    for each, module in list(sys.modules.items()):
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        if isinstance(loader, _Loader) and loader.patches is patches:
            del sys.modules[each]
    if not _finder.given:
        sys.meta_path.remove(_finder)


def _normal(name: str) -> str:
    """The name of a distribution as names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
