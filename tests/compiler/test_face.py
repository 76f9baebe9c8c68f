"""The names of `gnn_sparse_backend.compiler`: all there, described, known to type checkers, and imported when used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from gnn_sparse_backend import compiler

ROOT = Path(__file__).parents[2]
HOMES = {name: f"{compiler.__name__}{module}" for module, names in compiler._NAMES.items() for name in names.split()}
NAMES = sorted(HOMES)
STAGES = ("# Stage I, coordinate space", "# Schedule", "# Stage II, position space", "# Stage III, loops", "# Assembly")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_what_its_home_has(name):
    value = getattr(compiler, name)
    assert value is getattr(sys.modules[HOMES[name]], name) and value.__doc__


def test_type_checkers_know_the_same_names():
    tree = ast.parse(Path(compiler.__file__).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    found = {
        alias.asname: f"{compiler.__name__}.{node.module}"
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert found == HOMES


def test_every_name_is_listed_and_described():
    folder = ROOT / "docs" / "reference"
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\|.*", (folder / "compiler.md").read_text())))
    assert sorted(listed) == NAMES
    described = re.findall(r"(?m)^::: .*\.(\w+)$", "".join(page.read_text() for page in folder.glob("compiler-*.md")))
    assert set(NAMES) <= set(described)


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="'gnn_sparse_backend.compiler' has no attribute 'compile_programme'"):
        compiler.compile_programme  # noqa: B018
    assert set(NAMES) <= set(dir(compiler))


def test_importing_costs_nothing_and_programs_need_no_tvm():
    code = (
        "import sys, gnn_sparse_backend.compiler as c\n"
        "assert not {'numpy', 'tvm', 'torch'} & set(sys.modules)\n"
        "c.ProgramBuilder, c.interpret, c.decompose_format, c.ell_rule, c.sparse_reorder, c.maximum\n"
        "assert not {'tvm', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def row_scale(p):
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"))
    A, R = p.buffer("A", (I, J), "float32"), p.buffer("R", (I,), "float32")
    B = p.buffer("B", (I, J), "float32")
    with p.iterate("scale", (I, J), "SS") as (i, j):
        B[i, j] = A[i, j] * R[i]
    return p.finish()


def test_a_kernel_made_by_these_names_runs_and_prints_its_stages():
    program = row_scale(compiler.ProgramBuilder("row_scale"))
    matrix = scipy.sparse.random(7, 5, 0.4, "csr", np.float32, np.random.default_rng(0))
    scale, result = np.arange(7, dtype="float32"), np.empty(matrix.nnz, "float32")
    kernel = compiler.compile_program(program, compiler.cpu_schedule())
    kernel(7, 5, matrix.nnz, matrix.indptr, matrix.indices, matrix.data, scale, result)
    np.testing.assert_array_equal(result, matrix.data * np.repeat(scale, np.diff(matrix.indptr)))
    text = kernel.stages()
    places = [text.index(f"{heading}\n\n") for heading in STAGES]
    assert places == sorted(places) and text.startswith(STAGES[0])
    assert kernel.stages("stage3") == f"# Stage III, loops\n\n{kernel.script('stage3').strip()}\n"
    with pytest.raises(ValueError, match="'row_scale' has no text 'stage4'"):
        kernel.stages("stage4")
