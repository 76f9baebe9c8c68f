"""Processors of other machines, as targets that code is generated for here."""

from __future__ import annotations

from dataclasses import replace

from gnn_sparse_backend.compiler.codegen import Target
from gnn_sparse_backend.compiler.codegen.cpu.host import _features

LINUX, MACOS, WINDOWS = "aarch64-unknown-linux-gnu", "arm64-apple-macosx11.0.0", "aarch64-pc-windows-msvc"
ARM = {
    "neoverse-n1": Target("llvm", "neoverse-n1", LINUX),
    "neoverse-v1": Target("llvm", "neoverse-v1", LINUX, sve=32),
    "neoverse-v2": Target("llvm", "neoverse-v2", LINUX),
    "apple-m1": Target("llvm", "apple-m1", MACOS),
}
OTHERS = {
    "a Mac": ARM["apple-m1"],
    "an older Mac": Target("llvm", "haswell", "x86_64-apple-macosx11.0.0"),
    "Windows": Target("llvm", "x86-64-v3", "x86_64-pc-windows-msvc"),
    "Windows on Arm": Target("llvm", "generic", WINDOWS),
}


def complete(target: Target) -> Target:
    """A target with the features that LLVM knows of it."""
    return replace(target, features=_features(target))
