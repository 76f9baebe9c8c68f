"""Enabling replaces a few attributes; disabling restores every one."""

import sys

import pytest
import spconv.pytorch  # noqa: F401
from spconv.pytorch.conv import SparseConvolutionBase

import gnn_sparse_backend as gsb


def attributes() -> dict:
    """Every attribute of every module and class of spconv, by identity."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "spconv":
            for key, value in vars(module).items():
                found[name, key] = id(value)
                if isinstance(value, type) and value.__module__.startswith("spconv"):
                    found |= {(name, key, inner): id(held) for inner, held in vars(value).items()}
    return found


def test_disable_restores_every_attribute():
    before = attributes()
    for _ in range(2):
        gsb.enable("spconv")
        assert gsb.status().enabled == ("spconv",)
        during = attributes()
        changed = {key[1:] for key in during if during[key] != before.get(key)}
        assert changed == {
            ("SparseConvolutionBase", "_conv_forward"),
            ("SparseMaxPool", "forward"),
            ("SparseAvgPool", "forward"),
            ("SparseGlobalMaxPool", "forward"),
            ("SparseGlobalAvgPool", "forward"),
            ("sparse_add",),
            ("sparse_add_hash_based",),
        }
        gsb.enable("spconv")
        assert attributes() == during
        gsb.disable("spconv")
        assert attributes() == before


def test_failure_half_way_leaves_nothing(monkeypatch):
    from gnn_sparse_backend.integrations import spconv as plugin

    before, original = attributes(), SparseConvolutionBase._conv_forward

    def broken(_):
        raise OSError("no")

    monkeypatch.setattr(plugin, "_REPLACED", (*plugin._REPLACED[:2], (SparseConvolutionBase, "is_inverseable", broken)))
    with pytest.raises(OSError):
        gsb.enable("spconv")
    assert attributes() == before and SparseConvolutionBase._conv_forward is original
