"""What runs CUDA source on the CPU does what a GPU does, and says what is wrong on one."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from tests.simt.source import library_of, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

HEAD = "// what TVM puts before the kernels\n"


def kernel(body: str, parameters: str) -> str:
    return f'{HEAD}extern "C" __global__ void __launch_bounds__(64) kernel({parameters}) {{\n{body}\n}}\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("simt")


def launch(path, arrays, block, grid=(1, 1, 1), order: int = 0) -> None:
    library = ctypes.CDLL(str(path))
    held = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    given = (ctypes.c_void_p * len(held))(*(ctypes.addressof(one) for one in held))
    library.simt_launch(library.kernel_entry, (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), given, order)


NEIGHBOUR = """
  __shared__ alignas(64) float s[64];
  int n = threadIdx.y * 32 + threadIdx.x;
  s[n] = A_ptr[n];
  {barrier}
  C_ptr[n] = s[63 - n];
"""


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_a_barrier_orders_what_threads_write_and_read(order, folder):
    """Without it what is read depends on the order of the threads, which is how a race is found; what nobody wrote is
    NaN.
    """
    a, found = np.arange(64, dtype=np.float32), np.zeros(64, dtype=np.float32)
    ordered = library_of(
        kernel(NEIGHBOUR.format(barrier="__syncthreads();"), "float* __restrict__ A_ptr, float* __restrict__ C_ptr"),
        folder,
    )
    launch(ordered, (a, found), (32, 2, 1), order=order)
    assert np.array_equal(found, a[::-1])
    racing = library_of(
        kernel(NEIGHBOUR.format(barrier=""), "float* __restrict__ A_ptr, float* __restrict__ C_ptr"), folder
    )
    launch(racing, (a, found), (32, 2, 1), order=order)
    assert np.isnan(found).any() and not np.isnan(found).all()


@pytest.mark.parametrize("kind, name, terms", [("f16", "float16", 16), ("bf16", "uint16", 16), ("tf32", "float32", 8)])
def test_an_instruction_multiplies_fragments(kind, name, terms, folder):
    """Against a product of matrices; a lane loads its fragments as PTX ISA has them."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((16, terms), (terms, 8), (16, 8)))
    stored = [(x.view(np.uint32) >> 16).astype(np.uint16) if kind == "bf16" else x.astype(name) for x in (a, b)]
    side = 1 if kind == "tf32" else 2
    element = {"f16": "half", "bf16": "nv_bfloat16", "tf32": "float"}[kind]
    body = f"""
  int lane = threadIdx.x;
  alignas(64) {element} AF[{4 * side}], BF[{2 * side}];
  alignas(64) float CF[4];
  for (int r = 0; r < 4; ++r)
    for (int e = 0; e < {side}; ++e)
      AF[r * {side} + e] = A_ptr[(lane / 4 + r % 2 * 8) * {terms} + r / 2 * {4 * side} + lane % 4 * {side} + e];
  for (int r = 0; r < 2; ++r)
    for (int e = 0; e < {side}; ++e)
      BF[r * {side} + e] = B_ptr[(r * {4 * side} + lane % 4 * {side} + e) * 8 + lane / 4];
  for (int r = 0; r < 4; ++r) CF[r] = C_ptr[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2];
  {{
    __asm__ __volatile__(
      "mma.sync.aligned.m16n8k{terms}.row.col.f32.{kind}.{kind}.f32"
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%10, %11, %12, %13}};\\n"
      : {", ".join(f'"=f"(((float *)(&CF[0]))[{r}])' for r in range(4))}
      : {", ".join(f'"r"(((unsigned *)(&AF[0]))[{r}])' for r in range(4))},
        {", ".join(f'"r"(((unsigned *)(&BF[0]))[{r}])' for r in range(2))},
        {", ".join(f'"f"(((float *)(&CF[0]))[{r}])' for r in range(4))});
  }}
  for (int r = 0; r < 4; ++r) C_ptr[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = CF[r];
"""
    found = c.copy()
    launch(
        library_of(
            kernel(body, f"{element}* __restrict__ A_ptr, {element}* __restrict__ B_ptr, float* __restrict__ C_ptr"),
            folder,
        ),
        (*stored, found),
        (32, 1, 1),
        order=2,
    )
    np.testing.assert_array_equal(found, c + a @ b)


def test_shuffles_and_blocks(folder):
    """Among the lanes of a mask, up, down and from one; of a lane beyond, one's own. Blocks are numbered in two
    dimensions.
    """
    body = """
  int lane = threadIdx.x;
  float x = A_ptr[lane];
  float* C = C_ptr + (blockIdx.y * 2 + blockIdx.x) * 96;
  C[lane] = __shfl_down_sync(4294967295u, x, 3, 32);
  C[32 + lane] = __shfl_up_sync(4294967295u, x, 3, 8);
  if (lane < 16) C[64 + lane] = __shfl_sync(65535u, x, 5, 16);
  else C[64 + lane] = __shfl_sync(4294901760u, x, 2, 8);
"""
    a, found = np.arange(32, dtype=np.float32), np.zeros((4, 3, 32), dtype=np.float32)
    launch(
        library_of(kernel(body, "float* __restrict__ A_ptr, float* __restrict__ C_ptr"), folder),
        (a, found),
        (32, 1, 1),
        (2, 2, 1),
        3,
    )
    lane = np.arange(32)
    expected = [
        np.where(lane + 3 < 32, lane + 3, lane),
        np.where(lane % 8 >= 3, lane - 3, lane),
        np.where(lane < 16, 5, lane // 8 * 8 + 2),
    ]
    assert (found == np.array(expected)).all()


@pytest.mark.parametrize(
    "body, words",
    [
        (
            "if (threadIdx.x < 16) __syncthreads(); C_ptr[0] = A_ptr[0];",
            "threads have left while others wait at a barrier",
        ),
        (
            "if (threadIdx.x < 16) __syncthreads();\nelse __syncthreads();\nC_ptr[0] = A_ptr[0];",
            "wait at different barriers",
        ),
        (
            "if (threadIdx.x < 16) C_ptr[0] = __shfl_sync(4294967295u, A_ptr[0], 0, 32);",
            "lanes wait for others of their mask, which do not come",
        ),
        ("C_ptr[0] = __shfl_sync(65535u, A_ptr[0], 0, 32);", "a lane is not in the mask that it names"),
        ("C_ptr[0] = ((float4*)(A_ptr + 1))->x;", "misaligned address"),
    ],
)
def test_what_would_hang_or_is_undefined_is_said(body, words, folder):
    """In a process of its own, which it ends."""
    path = library_of(kernel(body, "float* __restrict__ A_ptr, float* __restrict__ C_ptr"), folder)
    program = (
        "import numpy as np\nfrom tests.simt.test_simt import launch\n"
        "a = np.zeros(20, dtype=np.float32)\na = a[-a.ctypes.data // 4 % 4:][:16]\n"
        f"launch({str(path)!r}, (a, np.zeros(4, dtype=np.float32)), (32, 1, 1))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode != 0 and words in done.stderr, done.stderr


def test_what_it_does_not_know_is_refused(folder):
    with pytest.raises(ValueError, match="an instruction that simt.h does not know"):
        library_of(kernel('asm volatile("bar.sync 0;");', "float* C_ptr"), folder)
    with pytest.raises(ValueError, match="no kernel in the source"):
        library_of("int nothing;", folder)
