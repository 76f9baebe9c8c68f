"""What building and loading give."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...deferred import tvm


@dataclass(frozen=True)
class LoadedModule:
    """Compiled functions in this process. ``module["name"]`` is called with scalars and tensors (DLPack, no copy)."""

    names: tuple[str, ...]
    module: tvm.runtime.Module
    path: Path | None = None

    def __getitem__(self, name: str) -> Any:
        try:
            return self.module.get_function(name)
        except AttributeError as error:
            known = f"; it has {', '.join(self.names)}" if self.names else ""
            raise KeyError(f"no function {name!r} in {self.path or 'the compiled module'}{known}") from error
