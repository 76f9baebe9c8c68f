"""What TACO's own evaluation of schedules asks for, as data: its `tests-scheduling-eval.cpp`, in smaller shapes."""

from __future__ import annotations

from tests.tensor.scheduling.taco_cases import COPIES, Port, commands, shuffled

SPMV, SPMM = "y[i] = A[i,j] * x[j]", "C[i,k] = A[i,j] * B[j,k]"
SDDMM = "A[i,k] = B[i,k] * C[i,j] * D[j,k]"
TTV, TTM = "A[i,j] = B[i,j,k] * c[k]", "A[i,j,l] = B[i,j,k] * C[k,l]"
MTTKRP = "A[i,j] = B[i,k,l] * C[k,j] * D[l,j]"
MTTKRP_4 = "A[i,j] = B[i,k,l,m] * C[k,j] * D[l,j] * E[m,j]"
MTTKRP_5 = "A[i,j] = B[i,k,l,m,n] * C[k,j] * D[l,j] * E[m,j] * F[n,j]"
SPMV_GIVEN = {"A": "ds", "x": "d"}, {"i": 21, "j": 19}
SPMM_GIVEN = {"A": "ds", "B": "dd"}, {"i": 21, "j": 19, "k": 8}
SDDMM_GIVEN = {"B": "ds", "C": "dd", "D": "dd"}, {"i": 18, "j": 5, "k": 21}
TTV_GIVEN = {"B": "sss", "c": "d"}, {"i": 6, "j": 7, "k": 8}
TTM_GIVEN = {"B": "sss", "C": "dd"}, {"i": 6, "j": 7, "k": 8, "l": 3}
MTTKRP_GIVEN = {"B": "dss", "C": "dd", "D": "dd"}, {"i": 18, "j": 3, "k": 5, "l": 4}
MTTKRP_4_GIVEN = {"B": "dsss", "C": "dd", "D": "dd", "E": "dd"}, {"i": 5, "j": 3, "k": 4, "l": 3, "m": 4}
MTTKRP_5_GIVEN = (
    {"B": "dssss", "C": "dd", "D": "dd", "E": "dd", "F": "dd"},
    {"i": 4, "j": 3, "k": 3, "l": 3, "m": 3, "n": 3},
)
NOT_SUMMED = "a reduction there, though nothing is summed over the lanes"
ROWS = "split i i0 i1 16; "
RACES = "races that TACO is told to ignore are atomic here"
MOST = "the bound of a part is one at most here"

SPMM_ROWS = ROWS + "pos j jpos A[i,j]; split jpos p0 p1 8; reorder i0 i1 p0 k p1; parallelize i0 threads"
SDDMM_ROWS = ROWS + "pos k kpos B[i,k]; split kpos p0 p1 8; reorder i0 i1 p0 j p1; parallelize i0 threads"
FIBRES = "fuse i j f; pos f fpos B[i,j,k]; split fpos chunk fpos2 16; "
TTM_FIBRES = FIBRES + "pos k kpos B[i,j,k]; split kpos p1 p2 8; reorder chunk fpos2 p1 l p2; "
WORKSPACE = (("reorder", "i", "k", "l", "j"), ("precompute", "B[i,k,l] * C[k,j]", "j", "jw", "w"))
INSIDE = (("reorder", "i", "k", "l", "j"), ("precompute", "B[i,k,l] * D[l,j]", "j", "jw", "w"))

ROW = (("precompute", "A[i,j] * B[j,k]", "k", "kw", "w"),)

CPU = (
    Port("test_spmvCPU_temp", SPMV, *SPMV_GIVEN, commands("parallelize i threads atomics")),
    Port(
        "test_sptvCPU_temp",
        "y[j] = A[i,j,k] * x[k]",
        {"A": "sss", "x": "d"},
        {"i": 6, "j": 7, "k": 8},
        commands("reorder i j k; parallelize j threads atomics"),
    ),
    Port(
        "example_spmvCPU_splitpos",
        SPMV,
        *SPMV_GIVEN,
        commands("fuse i j k; pos k kpos A[i,j]; split kpos k0 k1 16; parallelize k0 threads atomics"),
    ),
    Port(
        "spmmCPU",
        SPMM,
        *SPMM_GIVEN,
        commands(SPMM_ROWS + "; bound k kb 8 exact; parallelize kb lanes"),
        "only the innermost runs in lanes",
    ),
    Port("spmmCPU", SPMM, *SPMM_GIVEN, commands(SPMM_ROWS), differs="no lanes"),
    *(
        Port(
            "spgemm",
            SPMM,
            {"A": a, "B": b},
            SPMM_GIVEN[1],
            (*(ROW if b != "csc" else ()), ("parallelize", "i", "threads")),
            fill=20,
            wanted="csr",
        )
        for a, b in (("csr", "csr"), ("dcsr", "csr"), ("dcsr", "dcsr"), ("csr", "csc"), ("dcsr", "csc"))
    ),
    Port(
        "spmataddCPU",
        "C[i,j] = A[i,j] + B[i,j]",
        {"A": "csr", "B": "csr"},
        {"i": 21, "j": 10},
        commands("parallelize i threads"),
        wanted="csr",
    ),
    Port(
        "sptenaddCPU",
        "C[i,j,k] = A[i,j,k] + B[i,j,k]",
        {"A": "csf", "B": "csf"},
        {"i": 6, "j": 7, "k": 8},
        (),
        wanted="csf",
    ),
    Port("sddmmCPU", SDDMM, *SDDMM_GIVEN, commands(SDDMM_ROWS + "; parallelize p1 lanes"), differs=NOT_SUMMED),
    Port("spmvCPU", SPMV, *SPMV_GIVEN, commands(ROWS + "reorder i0 i1 j; parallelize i0 threads")),
    Port(
        "precompute2D",
        "y[i,j,l] = A[i,j,k] * x[k,l]",
        {"A": "ddd", "x": "dd"},
        {"i": 4, "j": 3, "k": 5, "l": 4},
        (("precompute", "A[i,j,k] * x[k,l]", ("i", "j", "l"), ("iw", "jw", "lw"), "w"),),
    ),
    Port("precompute1D", SPMV, *SPMV_GIVEN, (("precompute", "A[i,j] * x[j]", "i", "iw", "w"),)),
    Port("ttvCPU", TTV, *TTV_GIVEN, commands(FIBRES + "reorder chunk fpos2 k; parallelize chunk threads")),
    Port("ttvCPU_CSR", TTV, *TTV_GIVEN, commands("parallelize i threads"), wanted="csr", differs="converted to CSR"),
    Port(
        "ttmCPU",
        TTM,
        *TTM_GIVEN,
        commands(TTM_FIBRES + "parallelize chunk threads; parallelize p2 lanes parallel_reduction"),
    ),
    Port(
        "mttkrpCPU",
        MTTKRP,
        *MTTKRP_GIVEN,
        (*commands(ROWS + "reorder i0 i1 k l j"), WORKSPACE[1], ("parallelize", "i0", "threads")),
    ),
)

TB = "split fpos block fpos1 2048; split fpos1 warp fpos2 256; split fpos2 thread nz 8; reorder block warp thread nz; "
UNITS = "parallelize block block atomics; parallelize warp warp atomics; parallelize thread thread atomics"
SPMM_GPU = (
    "reorder i j k; fuse i j f; pos f fpos A[i,j]; split fpos block fpos1 64; "
    "split fpos1 warp nnz 8; split k du thread 32;"
    "reorder block warp thread du nnz; bound du dv 4 most; "
)
NZ = "split fpos block fpos1 2048; split fpos1 warp nnz 256; "
GPU = (
    Port(
        "spmvGPU",
        SPMV,
        *SPMV_GIVEN,
        (
            *commands("fuse i j f; pos f fpos A[i,j]; " + TB),
            ("precompute", "A[i,j] * x[j]", "nz", "nz_pre", "w"),
            *commands("unroll nz_pre; " + UNITS),
        ),
        differs=RACES,
        on_gpu=True,
    ),
    Port(
        "spmmGPU",
        SPMM,
        {"A": "ds", "B": "dd"},
        {"i": 5, "j": 6, "k": 128},
        commands(SPMM_GPU + UNITS),
        differs=RACES + "; " + MOST,
        on_gpu=True,
    ),
    Port(
        "spmmDCSRGPU",
        SPMM,
        {"A": "ss", "B": "dd"},
        {"i": 5, "j": 6, "k": 128},
        commands(
            "pos i ip A[i,j]; split ip block ip1 32; split ip1 warp row 4; "
            "bound k kb 128 exact; split kb thread col 32; "
            "reorder block warp row thread col j;" + UNITS
        ),
        on_gpu=True,
    ),
    Port(
        "sddmmGPU",
        SDDMM,
        {"B": "ds", "C": "dd", "D": "dd"},
        {"i": 6, "j": 128, "k": 7},
        commands(
            "reorder i k j; fuse i k f; pos f fpos B[i,k]; " + NZ + "split j du thread 32; bound du dv 4 most; "
            "reorder block warp nnz thread dv; unroll dv; parallelize block block atomics; "
            "parallelize warp warp atomics; parallelize thread thread parallel_reduction"
        ),
        on_gpu=True,
    ),
    Port(
        "ttmGPU",
        TTM,
        {"B": "sss", "C": "dd"},
        {"i": 3, "j": 2, "k": 3, "l": 128},
        commands(
            "reorder i j k l; fuse j k jk; fuse i jk f; pos f fpos B[i,j,k]; "
            + NZ
            + "split l du thread 32; bound du dv 4 most; reorder block warp nnz thread dv; unroll dv; "
            + UNITS
        ),
        on_gpu=True,
    ),
    Port(
        "ttvGPU",
        TTV,
        *TTV_GIVEN,
        (
            *commands("fuse j k jk; fuse i jk f; pos f fpos B[i,j,k]; " + TB),
            ("precompute", "B[i,j,k] * c[k]", "nz", "nz_pre", "w"),
            *commands("unroll nz_pre; " + UNITS),
        ),
        differs=RACES,
        on_gpu=True,
    ),
    Port(
        "mttkrpGPU",
        MTTKRP,
        {"B": "sss", "C": "dd", "D": "dd"},
        {"i": 6, "j": 32, "k": 5, "l": 4},
        commands(
            "reorder i k l j; fuse k l kl; fuse i kl f; pos f fpos B[i,k,l]; "
            "split fpos block fpos1 128; split fpos1 warp nnz 16; split j du thread 32; "
            "bound du dv 1 most; reorder block warp dv thread nnz; " + UNITS
        ),
        on_gpu=True,
    ),
    Port(
        "generate_evaluation_files.gpu spmv, a warp to a row",
        SPMV,
        {"A": "ds", "x": "d"},
        {"i": 12, "j": 40},
        commands(
            "split i block block_row 256; split block_row warp_row warp 8; pos j jpos A[i,j]; "
            "split jpos nz thread 32; reorder block warp warp_row thread nz; parallelize block block; "
            "parallelize warp warp; parallelize thread thread temporary"
        ),
        COPIES,
        on_gpu=True,
    ),
    Port(
        "generate_evaluation_files.gpu spmv, a thread to a row",
        SPMV,
        {"A": "ds", "x": "d"},
        {"i": 12, "j": 40},
        commands("split i block thread 256; parallelize block block; parallelize thread thread"),
        on_gpu=True,
    ),
)

FILES = "generate_evaluation_files.cpu "
GENERATED = (
    *(
        Port(FILES + "spmv", SPMV, *SPMV_GIVEN, commands(f"split i i0 i1 {n}; reorder i0 i1 j; parallelize i0 threads"))
        for n in (8, 16, 32)
    ),
    *(
        Port(
            FILES + "sddmm",
            SDDMM,
            *SDDMM_GIVEN,
            commands(SDDMM_ROWS.replace("16", n) + "; parallelize p1 lanes"),
            differs=NOT_SUMMED,
        )
        for n in ("16", "8")
    ),
    *(
        Port(
            FILES + "ttv",
            TTV,
            *TTV_GIVEN,
            commands(FIBRES.replace("16", n) + "reorder chunk fpos2 k; parallelize chunk threads"),
        )
        for n in ("16", "8", "32")
    ),
    *(
        Port(
            FILES + "ttm",
            TTM,
            *TTM_GIVEN,
            commands(
                TTM_FIBRES.replace("16", n) + "parallelize chunk threads; parallelize p2 lanes parallel_reduction"
            ),
        )
        for n in ("16", "8")
    ),
    Port(
        FILES + "mttkrp3, workspace",
        MTTKRP,
        *MTTKRP_GIVEN,
        (*INSIDE, *commands("split i i1 i2 64; parallelize i1 threads")),
    ),
    Port(
        FILES + "mttkrp4",
        MTTKRP_4,
        *MTTKRP_4_GIVEN,
        commands("split i i1 i2 4; reorder i1 i2 k l m j; parallelize i1 threads"),
    ),
    Port(
        FILES + "mttkrp4, workspaces",
        MTTKRP_4,
        *MTTKRP_4_GIVEN,
        (
            ("reorder", "i", "k", "l", "m", "j"),
            ("precompute", "B[i,k,l,m] * E[m,j] * D[l,j]", "j", "j1", "w1"),
            ("precompute", "B[i,k,l,m] * E[m,j]", "j1", "j2", "w2"),
            *commands("split i i1 i2 64; parallelize i1 threads"),
        ),
    ),
    Port(
        FILES + "mttkrp5",
        MTTKRP_5,
        *MTTKRP_5_GIVEN,
        commands("split i i1 i2 4; reorder i1 i2 k l m n j; parallelize i1 threads"),
    ),
    Port(
        FILES + "mttkrp5, workspaces",
        MTTKRP_5,
        *MTTKRP_5_GIVEN,
        (
            ("reorder", "i", "k", "l", "m", "n", "j"),
            ("precompute", "B[i,k,l,m,n] * F[n,j] * E[m,j] * D[l,j]", "j", "j1", "w1"),
            ("precompute", "B[i,k,l,m,n] * F[n,j] * E[m,j]", "j1", "j2", "w2"),
            ("precompute", "B[i,k,l,m,n] * F[n,j]", "j2", "j3", "w3"),
            *commands("split i i1 i2 64; parallelize i1 threads"),
        ),
    ),
    Port("generate_figures.cpu", SPMV, *SPMV_GIVEN),
    Port("generate_figures.cpu", SPMV, *SPMV_GIVEN, commands("split i i1 i2 4")),
    Port("generate_figures.cpu", SPMV, *SPMV_GIVEN, commands("fuse i j f; pos f p A[i,j]")),
)
EVALUATIONS = (*CPU, *GPU, *map(shuffled, (port for port in GPU if port.refused == COPIES)), *GENERATED)
