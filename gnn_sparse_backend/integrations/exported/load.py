"""``gsb.load_export``: a package of a model as a function."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .operators import register

SUFFIX = ".pt2"


def load_export(path: str | Path) -> Callable[..., Any]:
    """Load a package that ``gsb.export`` has written.

    The framework of the model is not imported. The structure of an edge index is found by the tensor, else by its
    content, and kept, as in eager programs.

    Args:
        path: of the package, ``NAME.pt2``.

    Returns:
        A function of the arguments of the model. That of an exported program is an ``nn.Module``, with its parameters;
        that of AOTInductor a compiled one.

    Raises:
        FileNotFoundError: there is no package.
        ValueError: the file is none that ``gsb.export`` has written, or its name does not end in ``.pt2``.
    """
    path = package_path("load_export", path)
    if not path.is_file():
        raise FileNotFoundError(f"load_export: there is no {path}; gsb.export writes it")
    try:
        with zipfile.ZipFile(path) as archive:
            compiled = any("aotinductor/" in name for name in archive.namelist())
    except zipfile.BadZipFile as error:
        raise ValueError(f"load_export: {path} is no package of torch.export or AOTInductor: {error}") from None
    register()
    return torch._inductor.aoti_load_package(str(path)) if compiled else torch.export.load(path).module()


def package_path(function: str, path: str | Path) -> Path:
    """A path of a package. Raises ValueError for another name."""
    if Path(path).suffix != SUFFIX:
        raise ValueError(f"{function}: the name of a package ends in {SUFFIX}, got {str(path)!r}")
    return Path(path)
