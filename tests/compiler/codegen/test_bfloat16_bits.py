"""Two bfloat16 numbers in a word, and the bits of one: in every interpreter and in machine code, against PyTorch."""

import numpy as np
import torch

from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import call
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.printer import program_from_script, script
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.position.interpret import run_loops, run_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule

SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"), 1e-40, -1e-40, 3.3e38, 3.4e38, 2.0**-133]
)


def singles() -> torch.Tensor:
    """Special ones, and some that lie half-way between two bfloat16 numbers, just beside that, and anywhere."""
    generator = torch.Generator().manual_seed(0)
    upper = torch.randint(-(2**15), 2**15, (100,), generator=generator, dtype=torch.int32) * 65536
    beside = [(upper + lower).view(torch.float32) for lower in (0, 1, 32767, 32768, 32769, 65535)]
    return torch.cat([SPECIAL, *beside, torch.randn(12, generator=generator)])


def word_program(width: int):
    """Low and High are the halves of the words of W; Bits are those of X."""
    p = ProgramBuilder("words")
    (m,) = p.sizes("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", width)
    W, X = p.buffer("W", (I, K), "uint32"), p.buffer("X", (I, K), "float32")
    Low, High, Bits = (
        p.buffer("Low", (I, K), "float32"),
        p.buffer("High", (I, K), "float32"),
        p.buffer("Bits", (I, K), "uint32"),
    )
    with p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("map", (K,), "S") as (k,):
            Low[i, k] = call("low_half", W[i, k])
            High[i, k] = call("high_half", W[i, k])
            Bits[i, k] = call("bfloat16_bits", X[i, k])
    return p.finish()


def test_halves_and_bits():
    x = singles().reshape(-1, 8)
    halves = torch.stack([x.bfloat16(), x.flip(1).bfloat16()], 2)
    program = word_program(x.shape[1])
    assert program_from_script(script(program)) == program
    arguments = {
        "m": len(x),
        "W": halves.view(torch.uint32).flatten(1).numpy(),
        "X": x.numpy(),
        "Low": np.zeros(x.shape),
        "High": np.zeros(x.shape),
        "Bits": np.zeros(x.shape, np.uint32),
    }
    stage2 = lower(program)
    found = [interpret(program, arguments), run_position(stage2, arguments), run_loops(flatten(stage2), arguments)]
    for vectorize in (True, False):
        out = {
            "Low": np.full(x.shape, 7, np.float32),
            "High": np.full(x.shape, 7, np.float32),
            "Bits": np.zeros(x.shape, np.uint32),
        }
        compile_program(program, cpu_schedule(parallel=False, vectorize=vectorize))(
            len(x), arguments["W"], x.numpy(), *out.values()
        )
        found.append(out)
    for each in found:
        np.testing.assert_array_equal(each["Low"], halves[..., 0].float().numpy())
        np.testing.assert_array_equal(each["High"], halves[..., 1].float().numpy())
        bits = (
            torch.from_numpy(np.asarray(each["Bits"]).astype(np.int64))
            .to(torch.int32)
            .to(torch.int16)
            .view(torch.bfloat16)
        )
        torch.testing.assert_close(bits, x.bfloat16(), rtol=0, atol=0, equal_nan=True)
        assert torch.equal(bits.signbit() | bits.isnan(), x.signbit() | x.isnan())
