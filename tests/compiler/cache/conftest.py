from __future__ import annotations

from pathlib import Path

import pytest
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from gnn_sparse_backend.compiler.cache import DiskCache, KernelStore
from gnn_sparse_backend.compiler.codegen import build_shared, host_target
from tests.compiler.cache.helpers import CopyBuild, load


def scale_function(factor: float):
    """``main(m, a, b)``: ``b[i] = a[i] * factor`` for i < m, in float32."""
    with IRBuilder() as ib, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True})
        m = T.arg("m", T.int32())
        a = T.arg("a", T.buffer((m,), "float32", layout=None, align=4))
        b = T.arg("b", T.buffer((m,), "float32", layout=None, align=4))
        with T.serial(0, m) as i:
            IRBuilder.name("i", i)
            T.buffer_store(b, a[i] * T.float32(factor), [i])
    return ib.get()


@pytest.fixture(scope="session")
def libraries(tmp_path_factory) -> dict[float, Path]:
    """Compiled libraries by factor, so that a test's build is a copy."""
    return {
        factor: build_shared(scale_function(factor), host_target(), tmp_path_factory.mktemp("library"))
        for factor in (2.0, 3.0)
    }


@pytest.fixture
def build(libraries) -> CopyBuild:
    return CopyBuild(libraries[2.0])


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def new_store(root):
    """Makes stores that know the disk only, as a fresh process does."""
    return lambda **options: KernelStore(DiskCache(root, **options), load)
