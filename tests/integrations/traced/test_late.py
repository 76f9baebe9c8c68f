"""Dynamo imported before a framework is enabled, while it is, and after it was: what each finds is the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

_HELP = """
import sys
import torch
from gnn_sparse_backend.integrations.core.substitutes.stand_ins import import_dgl
import_dgl()
import dgl
import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.traced.entry_points import _SETTINGS, _Pass

def import_dynamo():
    import torch._dynamo.trace_rules
    import torch._inductor.config
    global rules, inductor, eval_frame, CustomGraphPass
    from torch._inductor.custom_graph_pass import CustomGraphPass
    rules, inductor, eval_frame = torch._dynamo.trace_rules, torch._inductor.config, torch._dynamo.eval_frame
    assert not any("gnn_sparse_backend.dynamo" in str(type(each).__module__) for each in sys.meta_path)

def entered():
    skipped = any(folder.endswith("dgl") for folder in rules.SKIP_DIRS)
    passes = [getattr(inductor, name) for name in _SETTINGS]
    ours = [isinstance(each, _Pass) and isinstance(each, CustomGraphPass) for each in passes]
    code = getattr(eval_frame._maybe_set_eval_frame, "__code__", None)
    watched = code is not None and "gnn_sparse_backend" in code.co_filename
    assert all(ours) or passes == [None] * 3, passes
    return skipped, all(ours), watched

def run():
    g = dgl.graph((torch.arange(5000) % 90, torch.arange(5000) % 70), num_nodes=90)
    x = torch.randn(90, 8)
    layer = dgl.nn.pytorch.SAGEConv(8, 4, "mean")
    wanted = layer(g, x)
    torch.testing.assert_close(torch.compile(layer, backend="eager")(g, x), wanted)
"""
_ORDERS = {
    "before": """
        import_dynamo()
        assert entered() == (False, False, False)
        gsb.enable("dgl")
        assert entered() == (True, True, True)
        run()
        gsb.disable()
        assert entered() == (False, False, False)
    """,
    "between": """
        gsb.enable("dgl")
        assert "torch._dynamo" not in sys.modules
        import_dynamo()
        assert entered() == (True, True, True)
        run()
        gsb.disable()
        assert entered() == (False, False, False)
        gsb.enable("dgl")
        assert entered() == (True, True, True)
    """,
    "after": """
        gsb.enable("dgl")
        gsb.disable()
        assert "torch._dynamo" not in sys.modules
        import_dynamo()
        assert entered() == (False, False, False)
        run()
    """,
}
_UNTRACED = """
import sys
import torch
from gnn_sparse_backend.dynamo import not_traced

def inner(x):
    seen.append(torch.compiler.is_compiling())
    return x + 1

late = not_traced(inner)
assert late(torch.ones(2)).tolist() == [2, 2] and "torch._dynamo" not in sys.modules, "called without a Dynamo"
import torch._dynamo
from torch._dynamo.testing import CompileCounter
found = []
for function in (torch.compiler.disable(inner), late, not_traced(inner)):
    def outer(x):
        return function(x * 2) * 3
    seen, counter = [], CompileCounter()
    torch._dynamo.reset()
    assert torch.compile(outer, backend=counter)(torch.ones(2)).tolist() == [9, 9]
    try:
        torch.compile(outer, backend="eager", fullgraph=True)(torch.ones(2))
    except torch._dynamo.exc.Unsupported:
        found.append((seen, counter.frame_count, counter.op_count))
    # neither is a program itself
    alone = CompileCounter()
    torch.compile(lambda x: function(x), backend=alone)(torch.ones(2))
    found[-1] += (alone.frame_count,)
assert found[0] == found[1] == found[2] == ([False, False], 2, 2, 0), found
"""


def _run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("order", _ORDERS)
@pytest.mark.slow
def test_dynamo_is_told_in_any_order(order):
    _run(_HELP + textwrap.dedent(_ORDERS[order]))


def test_what_is_not_traced_ends_programs_as_what_pytorch_disables():
    _run("seen = []\n" + _UNTRACED)
