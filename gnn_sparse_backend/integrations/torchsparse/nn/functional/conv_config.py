"""Configurations of convolutions: which maps torchsparse makes, and how its kernels go about them.

Two of all settings are about results, and count here: ``kmap_mode`` and ``downsample_mode``. The others choose among
torchsparse's kernels, and are kept without effect.
"""

from __future__ import annotations

import copy
from enum import Enum
from typing import Any

KMAP_MODES = ("hashmap_on_the_fly", "hashmap")
DOWNSAMPLE_MODES = ("spconv", "minkowski")


class Dataflow(Enum):
    """How torchsparse's kernels go about a convolution."""

    ImplicitGEMM = 0
    GatherScatter = 1
    FetchOnDemand = 2
    CodedCSR = 3


class ConvMode(Enum):
    """How torchsparse's kernels sort masks."""

    mode0 = 0
    mode1 = 1
    mode2 = 2


class ConvConfig(dict[str, Any]):
    """Settings by name, as entries and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def copy(self) -> ConvConfig:
        return ConvConfig(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> ConvConfig:
        return ConvConfig({name: copy.deepcopy(value, memo) for name, value in self.items()})


_modes = {"kmap_mode": KMAP_MODES[0], "downsample_mode": DOWNSAMPLE_MODES[0]}
_conv_mode = ConvMode.mode0
_global: ConvConfig | None = None


def get_default_conv_config(conv_mode: ConvMode | None = None, training: bool = False) -> ConvConfig:
    """A new configuration, with the modes that are in force now."""
    return ConvConfig(
        dataflow=Dataflow.ImplicitGEMM,
        ifsort=False,
        split_mask_num=1,
        split_mask_num_bwd=3,
        epsilon=0.0,
        mm_thresh=0,
        FOD_fusion=True,
        **_modes,
    )


def set_global_conv_config(conv_config: ConvConfig | dict[str, Any]) -> None:
    """Give the configuration of all layers that have none of their own. What is missing is as of the default."""
    global _global
    _global = ConvConfig({**get_default_conv_config(), **conv_config})


def get_global_conv_config() -> ConvConfig | None:
    """The configuration of layers that have none of their own, if one was set."""
    return _global


def clear_global_conv_config() -> None:
    """Have layers without a configuration follow the default again."""
    global _global
    _global = None


def get_kmap_mode() -> str:
    """The mode of maps in force."""
    return _modes["kmap_mode"]


def set_kmap_mode(kmap_mode: str) -> None:
    """``"hashmap_on_the_fly"``: strided layers are those of PyTorch, behind their padding. ``"hashmap"``: their kernels
    are in the middle of a coarse cell's first site.
    """
    _modes["kmap_mode"] = _one_of("kmap_mode", kmap_mode, KMAP_MODES)


def get_downsample_mode() -> str:
    """The mode of coarser sites in force."""
    return _modes["downsample_mode"]


def set_downsample_mode(downsample_mode: str) -> None:
    """In the kmap_mode ``"hashmap"``: ``"spconv"`` has all coarse sites that the kernel reaches, ``"minkowski"`` the
    coarse cells that hold a site.
    """
    _modes["downsample_mode"] = _one_of("downsample_mode", downsample_mode, DOWNSAMPLE_MODES)


def get_conv_mode() -> ConvMode:
    """What ``set_conv_mode`` was given."""
    return _conv_mode


def set_conv_mode(conv_mode: ConvMode | int) -> None:
    """Keep how torchsparse would sort masks. No result depends on it, here or there."""
    global _conv_mode
    _conv_mode = ConvMode(conv_mode)


def config_in_force(config: ConvConfig | None) -> ConvConfig:
    """The configuration of a layer: its own, else the global one, else the default. Raises ValueError for a mode that
    there is not.
    """
    found = ConvConfig({**_modes, **(config or _global or {})})
    _one_of("kmap_mode", found.kmap_mode, KMAP_MODES)
    _one_of("downsample_mode", found.downsample_mode, DOWNSAMPLE_MODES)
    return found


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")
    return value
