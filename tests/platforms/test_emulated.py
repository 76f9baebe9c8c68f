"""What instructions of Arm compute, run under an emulator where one is installed, against float64.

``make test-aarch64`` runs tests of the whole package so (docs/platforms.md); here are the functions that TVM has no
words for, in milliseconds.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.codegen.cpu.formulas import llvm_function
from gnn_sparse_backend.compiler.codegen.cpu.instructions import exp2, mmla, pair_dot, pairs, transpose
from tests.platforms import emulated
from tests.platforms.targets import ARM, complete

pytestmark = pytest.mark.skipif(bool(emulated.missing()), reason=f"needs {emulated.missing()}")


def words(*rows: torch.Tensor) -> bytes:
    return b"".join(each.contiguous().view(torch.uint8).numpy().tobytes() for each in rows)


def numbers(found: bytes, *shape: int, dtype=np.float32) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(found, dtype).copy()).view(shape)


def loads(kinds: dict[str, tuple[str, int]]) -> str:
    """Values of these types at these bytes of what is given."""
    return "".join(
        f"  %{x}.p = getelementptr i8, ptr %given, i64 {at}\n  %{x} = load {kind}, ptr %{x}.p, align 4\n"
        for x, (kind, at) in kinds.items()
    )


def calling(declared: str, body: str) -> str:
    return f"{declared}\ndefine void @work(ptr %given, ptr %made) {{\n{body}  ret void\n}}\n"


@pytest.mark.short(3)
@pytest.mark.parametrize("cpu, lanes", [("neoverse-v2", 4), ("neoverse-v1", 8), ("neoverse-n1", 4), ("apple-m1", 1)])
def test_pairs_of_bfloat16(cpu, lanes, tmp_path):
    """By bfdot of NEON, of SVE with 256 bits, and in ordinary instructions."""
    target = complete(ARM[cpu if cpu != "apple-m1" else "neoverse-n1"])
    generator = torch.Generator().manual_seed(lanes)
    s = torch.randn(lanes, generator=generator)
    a, w = (torch.randn(lanes, 2, generator=generator).bfloat16() for _ in range(2))
    f32, i32 = ("float", "i32") if lanes == 1 else (f"<{lanes} x float>", f"<{lanes} x i32>")
    name = pair_dot.function_name(lanes)
    text = pair_dot.llvm_text(lanes, target.features, target.sve)
    assert ("bfdot" in text) == target.has_arm_bf16
    body = loads({"s": (f32, 0), "a": (i32, 4 * lanes), "w": (i32, 8 * lanes)})
    body += f"  %r = call {f32} @{name}({f32} %s, {i32} %a, {i32} %w)\n  store {f32} %r, ptr %made, align 4\n"
    found = emulated.run(calling(text, body), words(s, a, w), 4 * lanes, target, tmp_path)
    want = s.double() + (a.double() * w.double()).sum(1)
    torch.testing.assert_close(numbers(found, lanes).double(), want, rtol=1e-6, atol=1e-6)


@pytest.mark.short(2)
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("terms", [4, 32])
@pytest.mark.parametrize("cpu", ["neoverse-v2", "neoverse-n1"])
def test_tiles_of_bfloat16(cpu, terms, fresh, tmp_path):
    """8 x 8 sums, added or stored, by bfmmla, and in ordinary instructions, of small integers, whose sums are exact."""
    target, generator = complete(ARM[cpu]), torch.Generator().manual_seed(terms)
    c = torch.randint(-9, 10, (8, 8), generator=generator).float()
    a, b = (torch.randint(-4, 5, shape, generator=generator).bfloat16() for shape in ((8, terms), (terms, 8)))
    in_pairs = b.view(terms // 2, 2, 8).transpose(1, 2)
    at_a, at_b = 256, 256 + 16 * terms
    body = "".join(
        f"  %{name} = getelementptr i8, ptr %{base}, i64 {at}\n"
        for name, base, at in [
            *(("c", "given", 0), ("c2", "given", 32), ("a", "given", at_a), ("a2", "given", at_a + 2 * terms)),
            *(("b", "given", at_b), ("b2", "given", at_b + 32)),
        ]
    )
    name = mmla.product_name(8, 8, terms, fresh)
    body += f"  call void @{name}(ptr %c, ptr %c2, ptr %a, ptr %a2, ptr %b, ptr %b2)\n"
    body += "  call void @llvm.memcpy.inline.p0.p0.i64(ptr %made, ptr %given, i64 256, i1 false)\n"
    text = mmla.llvm_text([name], target.features)
    declared = f"{text}declare void @llvm.memcpy.inline.p0.p0.i64(ptr, ptr, i64 immarg, i1 immarg)\n"
    found = emulated.run(calling(declared, body), words(c, a, in_pairs), 256, target, tmp_path)
    torch.testing.assert_close(numbers(found, 8, 8), c * (not fresh) + a.float() @ b.float(), rtol=0, atol=0)


@pytest.mark.parametrize("cpu", ["neoverse-v2", "neoverse-n1"])
def test_rows_in_pairs_are_rounded_as_pytorch_rounds(cpu, tmp_path):
    """By bfcvt, and in ordinary instructions: halfway cases, infinities and NaN among them."""
    target = complete(ARM[cpu])
    rows = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    rows[0, :6] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, float("inf"), -float("inf"), float("nan"), 3.4e38])
    name = pairs.interleave_name("float32")
    body = f"  %next = getelementptr i8, ptr %given, i64 64\n  call void @{name}(ptr %made, ptr %given, ptr %next)\n"
    text = pairs.llvm_text([name], target.features)
    found = emulated.run(calling(text, body), words(rows), 64, target, tmp_path)
    got = numbers(found, 16, 2, dtype=np.int16).view(torch.bfloat16)
    torch.testing.assert_close(got, rows.bfloat16().T.contiguous(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name, cpu", [("exp2", "neoverse-v1"), ("exp", "neoverse-n1"), ("tanh", "neoverse-v1")])
def test_elementary_functions(name, cpu, tmp_path):
    """In vectors of the processor: four numbers of NEON, eight of SVE."""
    target = complete(ARM[cpu])
    lanes = target.lanes("float32")
    x = torch.linspace(-20, 20, lanes)
    if name == "exp2":
        symbol, text = exp2.function_name(lanes), exp2.llvm_text(lanes, target.features)
    else:
        symbol, text = llvm_function(name, "float32", lanes)
    f32 = f"<{lanes} x float>"
    body = loads({"x": (f32, 0)}) + f"  %r = call {f32} @{symbol}({f32} %x)\n  store {f32} %r, ptr %made, align 4\n"
    found = emulated.run(calling(text, body), words(x), 4 * lanes, target, tmp_path)
    rounding = 2e-4 if name == "exp2" else 1e-6
    torch.testing.assert_close(numbers(found, lanes), getattr(torch, name)(x), rtol=rounding, atol=0)


def test_squares_are_transposed(tmp_path):
    target, x = complete(ARM["neoverse-v1"]), torch.arange(64, dtype=torch.int32).view(8, 8)
    name = transpose.transpose_name(8)
    body = "  %f = getelementptr i8, ptr %given, i64 32\n  %t = getelementptr i8, ptr %made, i64 32\n"
    body += f"  call void @{name}(ptr %made, ptr %t, ptr %given, ptr %f)\n"
    found = emulated.run(calling(transpose.llvm_text([name]), body), words(x), 256, target, tmp_path)
    assert torch.equal(numbers(found, 8, 8, dtype=np.int32), x.T)
