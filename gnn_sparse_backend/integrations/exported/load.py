"""``gsb.load_export``: a package of a model as a function."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...compiler.packs.in_force import load_pack
from .operators import register

SUFFIX, PACK = ".pt2", ".gsb"


def load_export(path: str | Path) -> Callable[..., Any]:
    """Load a package that ``gsb.export`` has written, with the kernels beside it.

    Neither the framework of the model nor TVM is imported. The structure of an edge index is found by the tensor, else
    by its content, and kept, as in eager programs. A kernel that the example did not run is compiled, for which TVM has
    to be there.

    Args:
        path: of the package, ``NAME.pt2``; its kernels are in ``NAME.gsb`` in the same folder.

    Returns:
        A function of the arguments of the model. That of an exported program is an ``nn.Module``, with its parameters;
        that of AOTInductor a compiled one.

    Raises:
        FileNotFoundError: there is no package, or no kernels beside it.
        PackError: the kernels are damaged or for another processor, as ``gsb.load_pack`` has it.
        ValueError: the file is none that ``gsb.export`` has written, or its name does not end in ``.pt2``.
    """
    path = package_path("load_export", path)
    for each in (path, path.with_suffix(PACK)):
        if not each.is_file():
            raise FileNotFoundError(
                f"load_export: there is no {each}; gsb.export writes a package, {path.name}, and its kernels, "
                f"{path.with_suffix(PACK).name}, into one folder: copy both"
            )
    try:
        with zipfile.ZipFile(path) as archive:
            compiled = any("aotinductor/" in name for name in archive.namelist())
    except zipfile.BadZipFile as error:
        raise ValueError(f"load_export: {path} is no package of torch.export or AOTInductor: {error}") from None
    register()
    load_pack(path.with_suffix(PACK))
    return torch._inductor.aoti_load_package(str(path)) if compiled else torch.export.load(path).module()


def package_path(function: str, path: str | Path) -> Path:
    """A path of a package. Raises ValueError for another name."""
    if Path(path).suffix != SUFFIX:
        raise ValueError(f"{function}: the name of a package ends in {SUFFIX}, got {str(path)!r}")
    return Path(path)
