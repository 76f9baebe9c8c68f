"""Declared regions speak only of what is visible outside their block, and name every array that is read."""

import pytest
import tvm_ffi
from tvm import ir, s_tir, tirx

from gnn_sparse_backend.compiler.lowering import lower
from tests.compiler.programs_under_test import CASES


def blocks_of(function):
    """Every block with the buffers allocated in it or below it."""
    found = []
    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, found.append), order="post")
    return found


def buffers_in(node):
    """(read, written) by name, in the statements below."""
    read, written = set(), set()
    tvm_ffi.structural_walk(
        node,
        [
            (ir.TensorLoad, lambda load: read.add(load.source)),
            (tirx.BufferStore, lambda store: written.add(store.buffer)),
        ],
        order="post",
    )
    return read, written


def allocated_within(block):
    own = set(block.alloc_buffers)
    tvm_ffi.structural_walk(block.body, (s_tir.SBlock, lambda inner: own.update(inner.alloc_buffers)), order="post")
    return own


@pytest.mark.parametrize("name", sorted(CASES))
def test_regions_are_closed_and_complete(name):
    for block in blocks_of(lower(CASES[name].make("int32")).function):
        if block.name_hint == "root":
            continue
        own = allocated_within(block)
        for region in (*block.reads, *block.writes):
            assert region.source not in own, f"{block.name_hint} declares its own {region.source.name}"
            for extent in region.region:
                used = buffers_in(extent)[0]
                assert not used & own, (
                    f"{block.name_hint}: the region of {region.source.name} depends on its own buffers"
                )
        read, written = buffers_in(block.body)
        declared_reads, declared_writes = ({r.source for r in regions} for regions in (block.reads, block.writes))
        # a block that adds to what it writes reads it too; TVM leaves that out of the reads of a reduction
        assert {b.name for b in read - own - declared_reads - declared_writes} == set(), block.name_hint
        assert {b.name for b in written - own - declared_writes} == set(), block.name_hint
