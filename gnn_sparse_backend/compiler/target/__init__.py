"""Targets, building, loading and threads: the code that knows how TVM is spelled at build time."""

from .build import BuildError, LoadedModule, build_jit, build_shared, load
from .cpu import host_target
from .description import Target

__all__ = ["BuildError", "LoadedModule", "Target", "build_jit", "build_shared", "host_target", "load"]
