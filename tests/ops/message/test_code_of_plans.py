"""The kernels of the default plans for a GPU: machine code for both architectures, without a GPU.

Threads of a team exchange values by shuffles alone, and teams share nothing: so the source has no shared memory, no
barrier and no atomic operation, and there is nothing to race for. On Tensor Cores rows go through shared memory: there
are barriers, which are counted.
"""

from __future__ import annotations

import re

import pytest
from tvm import tirx

from gnn_sparse_backend.compiler.codegen import BuildError, build_shared, cuda_target
from gnn_sparse_backend.compiler.codegen.cuda.library import build_cuda_shared, check_lane_reductions
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import compile_cuda, nvcc_path, nvrtc_available
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from tests.compiler.cuda_batches import joined, machine_code, sources
from tests.compiler.cuda_plan_kernels import (
    BLOCKS,
    CHUNKS,
    DOTS,
    KERNELS,
    PIPELINED,
    PRODUCT,
    ROWS,
    SHARED,
    SHUFFLES,
    function_of,
    source_of,
)

ARCHITECTURES = ("sm_80", "sm_90")
needs_nvcc = pytest.mark.skipif(nvcc_path() is None, reason="no nvcc on this machine")


@pytest.mark.short(8)
@pytest.mark.parametrize("name", sorted(set(KERNELS) - set(SHARED)))
def test_threads_exchange_by_shuffles_alone(name):
    kernel = source_of(name, "sm_80").split('extern "C"')[-1]
    assert "blockIdx.x" in kernel and "threadIdx.x" in kernel
    for word in ("__shared__", "__syncthreads", "atomicAdd("):
        assert word not in kernel
    assert ("__shfl_" in kernel) == (name in SHUFFLES or name.endswith("_cached") or name.startswith("buckets"))


def test_sums_of_pairs_are_complete_before_they_are_multiplied():
    """One barrier, which all threads of the block meet, between the last store to shared memory and the first load."""
    kernel = source_of("rgms_float16", "sm_80").split('extern "C"')[-1]
    assert kernel.count("__shared__") == kernel.count("__syncthreads();") == 1
    before, after = kernel.split("__syncthreads();")
    assert before.count("{") - before.count("}") == 1  # in no loop and under no condition, but in the function
    stored, loaded = "*(half2*)(Sums_ptr", "= *(half2*)(Sums_ptr"
    assert stored in before and loaded not in before
    assert after.count(stored) == after.count(loaded) > 0
    assert "threadIdx.y" not in kernel  # a team is a block


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_a_relation_are_gathered_before_they_are_multiplied(name):
    """Two barriers in the loop over relations, which all threads of a block meet: before sums are stored to shared
    memory, and before they are loaded. Products stay in registers, and rows are stored by the threads that have them,
    once."""
    kernel = source_of(name, "sm_80").split('extern "C"')[-1]
    body = kernel[kernel.index("for (int64_t c = ") :]
    assert kernel.count("__shared__") == 1 and kernel.count("__syncthreads();") == body.count("__syncthreads();") == 2
    before, gathered, multiplied = body.split("__syncthreads();")
    for text in (before, before + gathered):
        assert text.count("{") - text.count("}") == 1  # in the loop over relations, and under nothing else
    stored = r"Sums_ptr(?:\w* \+ |\[)[^=;]*\)?\)? = "
    assert "Sums_ptr" not in before and re.search(stored, gathered) and not re.search(stored, multiplied)
    product = PRODUCT[name]
    assert product in multiplied and product not in before + gathered
    products, scattered = multiplied.rsplit(product, 1)
    assert "O_ptr" not in before + gathered + products and "O_ptr" in scattered and "atomic" not in kernel


@pytest.mark.parametrize("name", DOTS)
def test_rows_and_products_are_complete_before_they_are_read(name):
    """A barrier before the first product for the rows of a block; in the loop over relations, which all threads of a
    block meet, one before products are stored, and one before they are read. The dots of edges are stored by the warps
    that have them, once."""
    kernel = source_of(name, "sm_80").split('extern "C"')[-1]
    loaded, body = kernel[: kernel.index("for (int64_t c = ")], kernel[kernel.index("for (int64_t c = ") :]
    assert kernel.count("__shared__") == 2 and "atomic" not in kernel and PRODUCT[name] not in loaded
    multiplied, kept, read = (loaded + body).split("__syncthreads();")[-3:]
    for text in (multiplied, multiplied + kept):
        assert text.count("{") - text.count("}") == 1  # in the loop over relations, and under nothing else
    assert PRODUCT[name] in multiplied and PRODUCT[name] not in kept + read
    assert (
        "Products_ptr" not in multiplied
        and "Products_ptr" in kept
        and "Products_ptr" in read
        and "Near_ptr" not in kept + read
    )
    assert "O_ptr" not in multiplied + kept and "O_ptr" in read and "__shfl_" in read


def test_windows_are_complete_before_they_are_multiplied():
    """Two barriers in the loop over windows of features, which all threads of a block meet; rows are stored once, after
    it.
    """
    kernel = source_of("grouped_rows_full", "sm_80").split('extern "C"')[-1]
    body = kernel[kernel.index("for (int64_t k = ") :]
    assert kernel.count("__shared__") == 1 and kernel.count("__syncthreads();") == body.count("__syncthreads();") == 2
    loaded, kept, multiplied = body.split("__syncthreads();")
    for text in (loaded, loaded + kept):
        assert text.count("{") - text.count("}") == 1  # in the loop over windows, and under nothing else
    assert "A_ptr" in loaded and " Rows_ptr" not in loaded and "Rows_ptr" in kept and "Rows_ptr" in multiplied
    assert (
        "* BF_" in multiplied
        and "* BF_" not in loaded + kept
        and "C_ptr" not in loaded + kept + multiplied.rpartition("* BF_")[0]
    )


@pytest.mark.parametrize("name", [name for name in CHUNKS if name not in PIPELINED])
def test_chunks_are_complete_before_they_are_multiplied(name):
    """Two barriers in the loop over chunks, which all threads of a block meet: before a chunk is stored, and before it
    is loaded.
    """
    kernel = source_of(name, "sm_80").split('extern "C"')[-1]
    body = kernel[kernel.index("for (int64_t c = ") :]
    assert kernel.count("__syncthreads();") == body.count("__syncthreads();") == 2
    before, stored, loaded = body.split("__syncthreads();")
    for text in (before, before + stored):
        assert text.count("{") - text.count("}") == 1  # in the loop over chunks, and under nothing else
    for side in ("Left_ptr", "Right_ptr"):
        assert side not in before and side in stored and side in loaded
    assert "atomicAdd(" not in kernel and PRODUCT[name] not in stored and PRODUCT[name] in loaded


@pytest.mark.parametrize("name", PIPELINED)
def test_chunks_are_on_their_way_while_those_before_are_multiplied(name):
    """In the loop a chunk is loaded into registers, the one before is multiplied, and the chunk is stored to shared
    memory, with a barrier after each of the first two, which all threads of a block meet; one more is before the last
    product.
    """
    kernel = source_of(name, "sm_80").split('extern "C"')[-1]
    loop = kernel.index("for (int64_t jo = " if name in BLOCKS else "for (int64_t c = ")
    blank, body = kernel[:loop], kernel[loop:]
    fetched, multiplied, kept, last = body.split("__syncthreads();")
    depths = [
        text.count("{") - text.count("}") for text in (fetched, fetched + multiplied, fetched + multiplied + kept)
    ]
    assert depths == [1, 1, 0]  # in the loop over chunks, and under nothing else; after it
    for side in ("Rows_ptr",) if name in BLOCKS else ("Left_ptr", "Right_ptr"):
        assert side not in fetched and all(side in text for text in (blank, multiplied, kept, last))
    for array in ("A_ptr", "X_ptr") if name in BLOCKS else ("A_ptr", "G_ptr"):
        assert re.search(rf"Held_.* = .*\b{array}\b", fetched) and not re.search(rf"\b{array}\b", multiplied + kept)
    product = PRODUCT[name]
    assert product not in blank + fetched + kept and multiplied.count(product) == last.count(product) > 0
    assert "atomicAdd(" not in kernel


@pytest.mark.parametrize(
    "name, load",
    [
        ("spmm_128", "float4*)(X0_ptr"),
        ("spmm_602", "float2*)(X0_ptr"),
        ("tiles_float16", "half2*)(A_ptr"),
        ("outer_tf32", "float4*)(A_ptr"),
        ("rgms_outer_float16", "half2*)(X_ptr"),
        ("rgms_outer_float16", "half4*)(G_ptr"),
        ("sr_bcrs_float16", "half4*)(X_ptr"),
        ("rgms_rows_float16", "half4*)(X_ptr"),
        ("rgms_rows_tf32", "float4*)(X_ptr"),
        ("rgms_rows_float16", "half2*)(W_ptr"),
        ("rgms_rows_float16", "half4*)(O_ptr"),
        ("rgms_rows_tf32", "float2*)(W_ptr"),
        ("rgms_rows_float16_by_columns", "half2*)(W_ptr"),
        ("rgms_rows_full_by_columns", "float2*)(W_ptr"),
        ("outer_float16", "half2*)(Right_ptr"),
        ("rgms_rows_full", "float4*)(X_ptr"),
        ("rgms_rows_full", "float4*)(W_ptr"),
        ("rgms_rows_full", "float4*)(O_ptr"),
        ("rgms_dots_float16", "half4*)(G_ptr"),
        ("rgms_dots_full", "float2*)(X_ptr"),
        ("rgms_outer_full", "float4*)(W_ptr"),
        ("grouped_rows_full", "float4*)(A_ptr"),
        ("grouped_rows_full", "float4*)(W_ptr"),
        ("sddmm_heads_bfloat16", "nv_bfloat164*)(X1_ptr"),
        ("attention", "float4*)(X1_ptr"),
    ],
)
def test_rows_are_loaded_in_vectors(name, load):
    assert load in source_of(name, "sm_80")


@pytest.mark.parametrize("name", sorted(name for name in KERNELS if name.endswith("_cached")))
def test_edges_are_loaded_once_for_a_team(name):
    """Indices, numbers and weights of a stretch in one load of each, whose address is the lane's own, into a register;
    what is read of an edge is that register of its lane, under no condition but loops that all lanes of the team go
    through.
    """
    kernel = source_of(name, "sm_80").split('extern "C"')[-1]
    lines = kernel.splitlines()
    for array in ("indices_ptr[", "E_ptr[", "X1_ptr["):
        loads = [line for line in lines if array in line]
        assert loads or array == "E_ptr["
        assert all(
            re.match(r" *\w+_row_ptr\[0\] = ", line) and "threadIdx.x" in line.partition(array)[2] for line in loads
        )
    handed_on = [n for n, line in enumerate(lines) if "__shfl_sync(" in line]
    assert handed_on and all(re.match(r" *\w+_one_ptr\[0\] = __shfl_sync\(", lines[n]) for n in handed_on)
    for n in handed_on:
        depth = len(lines[n]) - len(lines[n].lstrip())
        around = []
        for line in reversed(lines[:n]):
            indent = len(line) - len(line.lstrip())
            if line.strip() and indent < depth and line.rstrip().endswith("{"):
                around.append(line.split("(")[0].strip())
                depth = indent
        assert around[:-1] == ["for"] * 3 + ["if"], (
            around
        )  # elements, stretches, rows; then whether there is a row at all


def test_buckets_are_one_launch_of_loops_of_known_length():
    text = source_of("buckets_of_512", "sm_80")
    assert set(re.findall(r"__global__ void __launch_bounds__\(128\) (\w+)\(", text)) == {"aggregate_kernel"}
    assert "indptr" not in text
    kernel = text.split('extern "C"')[-1]
    loops = re.findall(r"for \(\w+ (\w+) = [^;]+; \w+ < ([^;]+);", kernel)
    assert all(re.fullmatch(r"\d+|\(int64_t\)\d+", end) for _, end in loops)
    slots = {name: int(end.removeprefix("(int64_t)")) for name, end in loops if name.startswith("j_w")}
    # teams of 32 lanes load up to 32 slots at once; a bucket row of one slot has no loop
    assert slots == {f"j_w{2**e}": min(2**e, 32) for e in range(1, 10)}


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_machine_code_without_spills(arch):
    check(machine_code(sources({name: function_of(name, arch) for name in KERNELS}, arch), arch), set(KERNELS))


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc_available(), reason="no NVRTC, or no headers")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvrtc_makes_machine_code_of_them_too(arch):
    """The compiler of a machine without a toolkit: gathers, fragments of each type, loads ahead, and shuffles of what
    is chosen.
    """
    names = {"rgms_rows_float16", "rgms_rows_full", "outer_bfloat16", "bsr_tf32", "max_64_bfloat16_cached"}
    binary = compile_cuda(
        joined(sources({name: function_of(name, arch) for name in sorted(names)}, arch)), arch, "cubin", "nvrtc"
    )
    assert binary.code.startswith(b"\x7fELF")
    # it gives the sum of outer products of bfloat16 164 registers, so that three blocks fit, where nvcc's takes 128 at
    # most
    check({kernel.kernel.removesuffix("_kernel"): kernel for kernel in binary.statistics}, names, registers=168)


def check(found: dict, names: set[str], registers: int = 128) -> None:
    """What ptxas says of these kernels. registers: of a thread at most; with 128 four blocks of 128 threads are on
    every multiprocessor.
    """
    assert found.keys() == names
    for name, kernel in found.items():
        assert kernel.spill_stores == kernel.spill_loads == 0, kernel
        assert kernel.stack == 0, kernel  # local arrays are registers
        assert kernel.shared <= SHARED.get(name, 0), kernel
        assert kernel.registers <= registers, kernel


@pytest.mark.short(3)
@needs_nvcc
@pytest.mark.parametrize(
    "name, instruction",
    [
        ("rgms_float16", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("tiles_float16", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("tiles_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("outer_bfloat16", "m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("bsr_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("rgms_outer_float16", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("sr_bcrs_float16", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("rgms_rows_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("rgms_dots_float16", "m16n8k16.row.col.f32.f16.f16.f32"),
    ],
)
def test_products_use_tensor_cores(name, instruction):
    ptx = compile_cuda(source_of(name, "sm_80"), "sm_80", "ptx").code.decode()
    assert f"mma.sync.aligned.{instruction}" in ptx


@needs_nvcc
@pytest.mark.parametrize("name", ["outer_tf32", "sr_bcrs_float16"])
def test_the_compiler_leaves_loads_ahead_of_products(name):
    """In PTX: a loop that loads from global memory, then multiplies, then stores to shared memory what it has
    loaded.
    """
    ptx = compile_cuda(source_of(name, "sm_80"), "sm_80", "ptx").code.decode()
    fetched, multiplied, kept, _ = ptx.split("bar.sync")
    (start,) = {label for label in re.findall(r"\bbra\S*\s+(\$\w+);", kept) if f"\n{label}:" in fetched}
    assert "ld.global" in fetched.partition(f"\n{start}:")[2] and "mma.sync" not in fetched
    assert "mma.sync" in multiplied and "ld.shared" in multiplied and "ld.global" not in multiplied + kept
    assert "st.shared" in kept and "st.shared" not in multiplied


def test_a_cuda_kernel_is_kept_as_one_file(tmp_path):
    """With the host's code and the source, which a machine with a GPU compiles when it loads the file."""
    from gnn_sparse_backend.ops.message.programs.aggregate import aggregate

    program = aggregate(AggregateSpec(parse("x0"), (Operand("column", (4,), "float32"),), (4,)))
    function = stage3(program, team_schedule(1, teams=128))
    path = build_cuda_shared(function, cuda_target("sm_80"), tmp_path)
    assert path.suffix == ".so" and b"aggregate_kernel" in path.read_bytes()
    assert "__global__" in (tmp_path / "cuda.cu").read_text()
    with pytest.raises(ValueError, match="CPU files"):
        build_shared(function, cuda_target("sm_80"), tmp_path)


def test_a_reduction_that_was_lost_is_noticed():
    """TVM makes nothing of a reduction among lanes that it does not recognise."""
    function = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("gsb.lane_reductions", 2)
    check_lane_reductions("kernel", function, "mask = __activemask(); other = __activemask();")
    with pytest.raises(BuildError, match="TVM made 1 reductions among lanes of 2"):
        check_lane_reductions("kernel", function, "mask = __activemask();")
