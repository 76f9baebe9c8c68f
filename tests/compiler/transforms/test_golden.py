"""Each transformation on a tiny program, before and after, as texts; and that the two mean the same."""

from dataclasses import replace

import numpy as np
import pytest

from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.printer import program_from_script
from gnn_sparse_backend.compiler.transforms import (
    decompose_format,
    group_axis,
    hoist_axis,
    reduce_in_lanes,
    remove_copies,
    sparse_fuse,
    sparse_reorder,
    split_copies,
    tile_axis,
)
from gnn_sparse_backend.compiler.transforms.block_rules import bsr_rule
from gnn_sparse_backend.compiler.transforms.dense_axes.lanes_together import reduce_together
from gnn_sparse_backend.compiler.transforms.format_rules import ell_rule, hyb_bucket_rule
from tests.compiler.structures import complete
from tests.compiler.transforms.tiny_programs import dot, heads, local_sum, spmm


def hyb(program):
    program = group_axis(program, "I")
    rules = [hyb_bucket_rule(program, width, name=f"w{width}") for width in (1, 2)]
    return decompose_format(program, rules, copies=False)


def blocks_and_rows(program):
    return decompose_format(program, [bsr_rule(program, 2), ell_rule(program, 3)])


TRANSFORMED = {
    "sparse_reorder": (spmm, lambda p: sparse_reorder(p, "mul", ("K", "I", "J"))),
    "sparse_fuse": (lambda: remove_init(spmm()), lambda p: sparse_fuse(p, "mul", ("I", "J"))),
    "tile_axis": (local_sum, lambda p: tile_axis(p, "K", ((2, 1), (3,)))),
    "hoist_axis": (local_sum, lambda p: hoist_axis(p, "K")),
    "reduce_in_lanes": (dot, lambda p: reduce_in_lanes(p, "sum", 4)),
    "reduce_together": (heads, lambda p: reduce_together(p, "sum", 4)),
    "group_axis": (spmm, lambda p: group_axis(p, "I")),
    "decompose_format": (spmm, blocks_and_rows),
    "decompose_format_hyb": (spmm, hyb),
    "remove_copies": (lambda: blocks_and_rows(spmm()), remove_copies),
    "copies_alone": (lambda: blocks_and_rows(spmm()), lambda p: split_copies(p)[0]),
}


def remove_init(program):
    """The product that adds to what is there: its fusion over rows and non-zeros may have no init."""
    (it,) = program.iterations
    return replace(program, iterations=(replace(it, init=()),))


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_sums_together_have_the_bits_of_lanes(lanes):
    before = heads()
    arguments = complete(before, np.random.default_rng(lanes), {"m": 5})
    alone, together = (interpret(by(before, "sum", lanes), arguments)["Y"] for by in (reduce_in_lanes, reduce_together))
    np.testing.assert_array_equal(together, alone)


def before_and_after(before, after) -> str:
    """Two stage I programs, one below the other, and what was done."""
    steps = "".join(f"# {step}\n" for step in after.provenance[len(before.provenance) :])
    return f"{before.script()}\n{steps}\n{after.script()}"


@pytest.mark.parametrize("name", TRANSFORMED)
def test_before_and_after(name, file_regression):
    make, transform = TRANSFORMED[name]
    before = make()
    kept = before.script()
    after = transform(before)
    file_regression.check(before_and_after(before, after), basename=name)
    assert before.script() == kept
    assert program_from_script(after.script()) == after


@pytest.mark.parametrize(
    "name", ["sparse_reorder", "sparse_fuse", "tile_axis", "hoist_axis", "reduce_in_lanes", "reduce_together"]
)
@pytest.mark.parametrize("seed", range(4))
def test_the_meaning_stays(name, seed):
    make, transform = TRANSFORMED[name]
    before = make()
    rng = np.random.default_rng(seed)
    sizes = {s.name: 5 for s in before.sizes if s.name in ("m", "n")}
    arguments = complete(before, rng, sizes)
    want, got = interpret(before, arguments), interpret(transform(before), arguments)
    for buffer in before.parameters:
        np.testing.assert_allclose(got[buffer.name], want[buffer.name], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("cuts", [[0, 5], [0, 0, 2, 5, 5], [0, 1, 2, 3, 4, 5]])
def test_grouped_rows_mean_the_same(cuts):
    before = spmm()
    arguments = complete(before, np.random.default_rng(3), {"m": 5, "n": 4})
    after = group_axis(before, "I")
    got = interpret(after, arguments | {"num_T": len(cuts) - 1, "T_ptr": np.array(cuts)})
    np.testing.assert_array_equal(got["C"], interpret(before, arguments)["C"])


def test_transformations_are_recorded_in_order():
    program = sparse_fuse(sparse_reorder(remove_init(spmm()), "mul", ("K", "I", "J")), "mul", ("I", "J"))
    assert program.provenance == ("sparse_reorder(mul, K, I, J)", "sparse_fuse(mul, I, J)")


@pytest.mark.parametrize("on", ["the tiled axis", "the reduction"])
def test_tiles_keep_their_conditions(on):
    def body(p, i, J, K, B, C, S):
        with p.iterate("sum", (J, K), "RS") as (j, k):
            with p.init():
                S[k] = 0
            p.where(k < 4 if on == "the tiled axis" else j < 3)
            S[k] = S[k] + B[j, k]
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            p.where(f > 0)
            C[i, f] = S[f]

    before = local_sum(body)
    arguments = complete(before, np.random.default_rng(1), {"m": 5, "n": 6})
    arguments["C"][:] = 9
    got = interpret(tile_axis(before, "K", ((2, 1), (3,))), arguments)["C"]
    np.testing.assert_array_equal(got, interpret(before, arguments)["C"])
    assert (got[:, 0] == 9).all() and not (got[:, 1:] == 9).any()
