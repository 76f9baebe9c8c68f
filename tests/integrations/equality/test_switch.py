"""Without deferral there are immediate kernels only, and a program sees the same; the long run has all tests so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tests.integrations.equality import found_pyg, pair
from tests.integrations.equality.every_look import cases, program, why_not
from tests.integrations.equality.looks import LOOKS

SAMPLE = [name for name, look in LOOKS.items() if not look.compiled][::4]


@pytest.mark.short(24)
@pytest.mark.parametrize("framework, layer, look", cases(SAMPLE, short=1))
def test_immediate_kernels_alone(framework, layer, look):
    if (reason := why_not(framework, layer, look)) is not None:
        pytest.skip(reason)
    pair.check(program(framework, layer, look), framework, deferred=False, rough=LOOKS[look].rough)


def test_messages_are_computed_at_once():
    kinds = []

    class Layer(found_pyg.Sends):
        def message(self, x_j):
            kinds.append(type(x_j))
            return x_j * 0.5

    with pair.switched_on("pyg", deferred=False):
        Layer()(found_pyg.features(), found_pyg.EDGE_INDEX)
    assert kinds == [torch.Tensor]


def test_one_mode_after_the_other():
    for deferred in (True, False, True):
        pair.check(found_pyg.inner_force, "pyg", deferred=deferred)


ENVIRONMENT = """
import torch, gnn_sparse_backend as gsb
from tests.integrations.equality import found_pyg
kinds = []
class Layer(found_pyg.Sends):
    def message(self, x_j):
        kinds.append(type(x_j))
        return x_j * 0.5
gsb.enable("pyg")
Layer()(found_pyg.features(), found_pyg.EDGE_INDEX)
assert kinds == [torch.Tensor], kinds
"""


@pytest.mark.slow
def test_the_environment_switches_deferral_off():
    environment = {**os.environ, "GSB_DEFERRED": "0", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", ENVIRONMENT], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-1500:]
