"""Names of torchsparse that can be imported, so that modules which mention them are imported, and raise when used."""

from __future__ import annotations

from typing import Any, NoReturn


def absent(name: str, instead: str) -> type:
    """A class that raises NotImplementedError when it is made or called. instead: what to do, in words."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is not there in gnn_sparse_backend's torchsparse: {instead}")

    return type(name, (), {"__new__": refuse, "__doc__": f"Not there: {instead}."})
