"""Passes of TVM's that are left out for the CPU change nothing there; with them some kernels take half a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnn_sparse_backend.compiler.codegen import build
from gnn_sparse_backend.compiler.loops.neighbours import UNIFORM, draw_function
from gnn_sparse_backend.compiler.loops.numbering import FILL, numbering_function
from tests.pace import pace

PROGRAM = """
import json, re, time
import numpy as np, torch
import gnn_sparse_backend as gsb
from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.compiler.codegen import build

left_out, compiled, found = list(build.LEFT_OUT), build.compiled, {}

def code(module):
    return re.sub("0x[0-9a-f]+", "", module.inspect_source("ll"))

def both_ways(module, target):
    result = compiled(module, target)
    build.LEFT_OUT[:] = []
    same = code(compiled(module, target)) == code(result)
    build.LEFT_OUT[:] = left_out
    for name in build.function_names(module):
        found[name] = found.get(name, True) and same
    return result

graph = gsb.Graph.from_coo(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), (2, 2))
x, heads = torch.randn(2, 8), torch.randn(2, 2, 4)
a, b, c = (np.random.default_rng(n).random((3, 3, 3)[:n]).round() for n in (3, 3, 1))
a, b, c = st.array(a, "csf"), st.array(b, "csf"), st.array(c)

begin = time.process_time()
st.einsum("bba,bbc,c->ca", a, b, c)
seconds = time.process_time() - begin

build.compiled = both_ways
gsb.spmm(graph, x, reduce="mean"), gsb.spmm(graph, x, reduce="max"), gsb.sddmm(graph, x, x)
gsb.attention(graph, heads, heads, heads), gsb.segment_reduce(x, gsb.Segments.from_lengths(torch.tensor([1, 1]), 2))
st.einsum("abc,abc->abc", a, b), st.einsum("ab,bc->ac", st.array(np.eye(3), "csr"), st.array(np.eye(3), "csr"))
st.einsum("abc,abc->a", a, b, format="dense")
print(json.dumps([seconds, found]))
"""


@pytest.mark.exhaustive
def test_they_change_nothing_and_are_what_takes_long(tmp_path):
    environment = {**os.environ, "GSB_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    seconds, same = json.loads(ran.stdout.splitlines()[-1])
    assert seconds < 8 * pace()  # 0.9 on a quiet core, 29 with all passes
    assert len(same) >= 5 and all(same.values()), same


def test_a_function_of_hundreds_of_variables():
    """Its results are those of the sampler's tests; that pass alone takes two thirds of its compilation."""
    drawing, filling = (
        build._without_slow_passes(build.as_module(function)).disabled_pass
        for function in (draw_function("int32", UNIFORM), numbering_function(FILL, False))
    )
    assert set(drawing) - set(filling) == {"tirx.CommonSubexprElim"} and set(filling) == set(build.LEFT_OUT)
