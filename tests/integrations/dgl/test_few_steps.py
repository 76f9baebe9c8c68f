"""Methods of DGL's graphs on few edges: what they store, count and refuse is what DGL alone does."""

from __future__ import annotations

import re

import dgl
import dgl.function as fn
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status

from .test_few import KINDS, NODES, calls, compare, graph, random

pytestmark = pytest.mark.few


def hetero() -> dgl.DGLGraph:
    """One type of edges, and a type of nodes at none of them."""
    source, destination = graph().edges()
    return dgl.heterograph({("a", "to", "b"): (source, destination)}, {"a": NODES, "b": NODES + 2})


def made(kind: str) -> dgl.DGLGraph:
    return hetero() if kind == "hetero" else graph(kind)


def step(g, message, reduce, **features):
    """(function of the features, features) of ``update_all`` whose result is stored as ``out``."""

    def run(*values):
        with g.local_scope():
            for (name, (where, _)), value in zip(features.items(), values):
                getattr(g, where)[name] = value
            g.update_all(message, reduce)
            return g.dstdata["out"]

    return run, [value for _, value in features.values()]


@pytest.mark.parametrize("kind", [*KINDS, "csc, shuffled", "hetero", "none"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("message", ["copy_u", "copy_e", "u_mul_e", "u_sub_e", "e_div_u", "v_add_e", "u_add_v"])
def test_update_all(message, reduce, kind):
    if kind == "none" and reduce in ("max", "min"):
        pytest.skip("DGL's own gradient fails")
    g = made(kind)
    features = {
        "u": ("srcdata", random(g.num_src_nodes(), 3) + 4),
        "v": ("dstdata", random(g.num_dst_nodes(), 3)),
        "e": ("edata", random(g.num_edges(), 3)),
    }
    first, *rest = message.removeprefix("copy_").split("_")
    used = {first, *rest[1:]}
    given = {name: features[name] for name in features if name in used}
    names = (first, rest[1], "m") if rest else (first, "m")
    run, values = step(g, getattr(fn, message)(*names), getattr(fn, reduce)("m", "out"), **given)
    compare(run, *values)


@pytest.mark.parametrize("kind", [*KINDS, "csc, shuffled", "hetero"])
@pytest.mark.parametrize("message", ["u_add_v", "v_sub_u", "u_dot_v", "e_mul_v", "u_div_e"])
def test_apply_edges(message, kind):
    g = made(kind)
    sizes = {"u": g.num_src_nodes(), "v": g.num_dst_nodes(), "e": g.num_edges()}
    frames = {"u": g.srcdata, "v": g.dstdata, "e": g.edata}
    first, _, second = message.split("_")

    def run(x, y):
        frames[first]["x"], frames[second]["y"] = x, y
        g.apply_edges(getattr(fn, message)("x", "y", "out"))
        return g.edata.pop("out")

    compare(run, random(sizes[first], 4), random(sizes[second], 4) + 5)


@pytest.mark.short(2)
@pytest.mark.parametrize("kind", [*KINDS, "csr", "csc", "hetero", "none"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_degrees(kind, dtype):
    g = made(kind).astype(dtype)
    if kind in ("csr", "csc"):
        with pytest.raises(dgl.DGLError) as alone:
            g.in_degrees(), g.out_degrees()
        with gsb.enabled("dgl"), pytest.raises(type(alone.value)):
            g.in_degrees(), g.out_degrees()
        return
    nodes = torch.tensor([2, 0], dtype=dtype)

    def degrees() -> list:
        other = g if g.is_block else g.reverse()
        return [g.in_degrees(), g.out_degrees(), g.in_degrees(nodes), g.out_degrees(1), other.in_degrees()]

    expected = degrees()
    with gsb.enabled("dgl"):
        for _ in range(2):
            found = degrees()
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)
            found[0].zero_()  # the caller's own


def test_degrees_are_of_the_present_edges():
    g = graph()
    with gsb.enabled("dgl"):
        before = g.in_degrees()
        g.add_edges(torch.tensor([0, 1]), torch.tensor([2, 2]))
        assert g.in_degrees()[2] == before[2] + 2


BAD = {
    "no such feature": lambda g: g.update_all(fn.copy_u("missing", "m"), fn.sum("m", "out")),
    "no such feature of edges": lambda g: g.update_all(fn.u_mul_e("x", "missing", "m"), fn.sum("m", "out")),
    "another message": lambda g: g.update_all(fn.copy_u("x", "m"), fn.sum("n", "out")),
    "no function": lambda g: g.update_all("copy_u", fn.sum("m", "out")),
    "no edge type": lambda g: g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"), etype="missing"),
    "features that do not broadcast": lambda g: g.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "out")),
    "no such end": lambda g: g.apply_edges(fn.u_add_v("x", "missing", "out")),
    "ends that do not broadcast": lambda g: g.apply_edges(fn.u_add_v("x", "wide", "out")),
    "edges that are not there": lambda g: g.apply_edges(fn.u_add_v("x", "x", "out"), edges=[10_000]),
    "nodes that are not there": lambda g: g.out_degrees(10_000),
}


@pytest.mark.parametrize("run", BAD.values(), ids=BAD.keys())
def test_errors_are_dgls(run):
    def graphs():
        g = graph()
        g.ndata["x"], g.edata["w"], g.ndata["wide"] = random(NODES, 3), random(g.num_edges(), 2), random(NODES, 2)
        return g

    with pytest.raises(Exception) as alone:
        run(graphs())
    with gsb.enabled("dgl"), pytest.raises(type(alone.value)) as ours:
        run(graphs())
    found, expected = (re.sub("0x[0-9a-f]+", "", str(each.value)) for each in (ours, alone))
    assert found == expected


def test_what_is_stored_is_a_column_of_dgls():
    g = graph()
    g.ndata["x"] = random(NODES, 3)
    with gsb.enabled("dgl"):
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"), lambda nodes: {"out": nodes.data["out"] * 2})
        twice = g.ndata.pop("out")
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"))
        torch.testing.assert_close(g.ndata["out"] * 2, twice)
        assert g.node_attr_schemes()["out"].shape == (3,)
        part = g.subgraph(torch.arange(4))
        torch.testing.assert_close(part.ndata["out"], g.ndata["out"][:4])
        part.update_all(fn.copy_u("out", "m"), fn.mean("m", "out"))  # a column that is gathered when it is read
    alone = g.subgraph(torch.arange(4))
    alone.update_all(fn.copy_u("out", "m"), fn.mean("m", "out"))
    torch.testing.assert_close(part.ndata["out"], alone.ndata["out"])


def test_steps_are_counted_and_put_back():
    methods = [vars(dgl.DGLGraph)[name] for name in ("update_all", "apply_edges", "in_degrees", "out_degrees")]
    g = graph()
    g.ndata["x"] = random(NODES, 3)
    with gsb.enabled("dgl"):
        reset_status()
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"))
        g.update_all(fn.copy_u("x", "m"), fn.mean("m", "out"))
        g.apply_edges(fn.u_add_v("x", "x", "out"))
        counted = {name: row.ours for name, row in calls().items()}
    assert counted == {"gspmm": 1, "gspmm_mean": 1, "gsddmm": 1}
    assert methods == [vars(dgl.DGLGraph)[name] for name in ("update_all", "apply_edges", "in_degrees", "out_degrees")]
