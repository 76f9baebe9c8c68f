"""Elements that are visited several at a time: the same bits as one by one, at every stage, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import compile_program, stage2
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.prefetch import prefetch_gather
from gnn_sparse_backend.compiler.schedules.primitives.cpu.unroll_and_jam import unroll_and_jam
from gnn_sparse_backend.compiler.transforms import reduce_in_lanes
from gnn_sparse_backend.ops.message.programs.edge_map import EdgeMapSpec, edge_map
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from tests.compiler.message_programs import small_aggregation
from tests.compiler.structures import complete
from tests.compiler.tvm_text import tvm_text


def program(dims=(11,), reduced=(True,), lanes=4, index_dtype="int32", message="mul(x0, x1)", **spec):
    operands = tuple(Operand(at, dims, "float32") for at in ("row", "column"))
    made = edge_map(EdgeMapSpec(parse(message), operands, dims, reduced, "float32", index_dtype, **spec))
    return reduce_in_lanes(made, "sum", lanes) if lanes else made


MAKE = {
    "dot with a tail": program,
    "several heads": lambda **spec: program((3, 8), (False, True), **spec),
    "one by one": lambda **spec: program(lanes=0, **spec),
    "not summed": lambda **spec: program((3,), (False,), lanes=0, message="sub(x0, x1)", **spec),
    "in the order of the user": lambda **spec: program(numbered=True, **spec),
}


def arguments_of(made, seed):
    rng = np.random.default_rng(seed)
    found = complete(made, rng, {"num_groups": 3, "n": 40, "num_edges": 9}, most=11)
    for name in ("X0", "X1"):  # sums of which every order of additions is another number
        found[name] = rng.normal(size=found[name].shape).astype("float32")
    if "E" in found:
        found["E"], found["num_edges"] = rng.permutation(found["nnz"]).astype(found["E"].dtype), found["nnz"]
    found["O"] = np.full((found["nnz"], *np.shape(found["O"])[1:]), np.nan, "float32")
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", MAKE)
def test_every_stage_means_the_same(name, count, seed):
    """Rows of no edges, of fewer than are visited together, of as many, and of more."""
    made = MAKE[name](index_dtype="int64" if seed else "int32")
    arguments = arguments_of(made, seed)
    degrees = np.diff(arguments["indptr"])
    assert (degrees == 0).any() and (degrees > count).any() and (degrees % count != 0).any()
    want = interpret(made, arguments)["O"]
    position = stage2(made, cpu_schedule(unroll_and_jam("edges", count)))
    np.testing.assert_allclose(run_position(position, arguments)["O"], want, rtol=1e-12)
    np.testing.assert_allclose(run_loops(flatten(position), arguments)["O"], want, rtol=1e-12)
    found = []
    # the interpreters know of no prefetch
    for each in (
        cpu_schedule(unroll_and_jam("edges", count), ahead=(prefetch_gather("edges", "X1", 0, 8, 3),)),
        cpu_schedule(),
    ):
        copies = {n: v if isinstance(v, int) else np.array(v) for n, v in arguments.items()}
        compile_program(made, each)(*(copies[n] for n in made.parameter_names))
        np.testing.assert_allclose(copies["O"], want, rtol=1e-4, atol=1e-5)
        found.append(copies["O"])
    np.testing.assert_array_equal(*found)


def test_as_text(file_regression):
    position = stage2(program((8,)), cpu_schedule(unroll_and_jam("edges", 2), parallel=False))
    file_regression.check(tvm_text(position.function))


def test_refusals():
    for message, made, name, count in (
        ("1 at a time are not several", program(), "edges", 1),
        ("'rows' is not nested in another", program(), "rows", 2),
        ("'spmm' is not nested in another", csr_spmm(4), "spmm", 2),
        ("'sum_loop' is not over spatial axes", program(), "sum_loop", 2),
        ("'edges' is not over spatial axes", small_aggregation(), "edges", 2),
        ("'sum_main' stores to 'sum_partial', which outlives an element", program(), "sum_main", 2),
    ):
        with pytest.raises(StageIError, match=message):
            unroll_and_jam(name, count)(lower(made))
