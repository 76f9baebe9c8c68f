"""What TACO's own tests of transformations and workspaces ask for, as data."""

from __future__ import annotations

from tests.tensor.scheduling.taco_cases import CONVERTED, V8, V16, Port, commands

TWO, THREE = {"i": 5, "j": 4}, {"i": 3, "j": 4, "k": 5}
COPY, COPY_3 = "A[i,j] = B[i,j]", "S[i,j,k] = T[i,j,k]"
TRANSFORMATIONS = (
    # loops that are not there, or not of one nest
    Port(
        "reorder/precondition",
        "a[i] = B[i,j] * c[j]",
        {"B": "ds", "c": "s"},
        TWO,
        commands("reorder i j"),
        differs="both loops are there from the beginning: refused by TACO, right here",
    ),
    Port(
        "reorder/precondition",
        "A[i,k] = B[i,k] + C[i,k]",
        {"B": "ds", "C": "ds"},
        {"i": 3, "k": 4},
        commands("reorder i j"),
        "no loop over 'j'",
    ),
    Port(
        "reorder/precondition",
        COPY_3,
        {"T": "sss"},
        THREE,
        commands("reorder i k"),
        differs="not side by side: refused by TACO, right here",
    ),
    *(
        Port("reorder/apply", COPY, {"B": "ds"}, TWO, commands(each))
        for each in ("reorder i j", "reorder j i", "reorder j i")
    ),
    *(
        Port("reorder/apply", COPY_3, {"T": "sss"}, THREE, commands(each))
        for each in ("reorder i k j", "reorder j i k", "reorder j i k", "reorder k j i")
    ),
    Port(
        "precompute/apply",
        "a[i] = b[i] * c[i]",
        {"b": "s", "c": "s"},
        V8,
        (("precompute", "b[i] * c[i]", "i", "iw", "w"),),
    ),
    Port(
        "parallelize/precondition",
        "a[i] = b[i]",
        {"b": "s"},
        V8,
        commands("parallelize i threads"),
        differs=CONVERTED,
        wanted=("compressed",),
    ),
    Port(
        "parallelize/precondition",
        "w[i] = a[i] + b[i]",
        {"a": "s", "b": "s"},
        V8,
        commands("parallelize i threads"),
        differs="refused by TACO, which would merge on threads",
    ),
    Port(
        "parallelize/precondition",
        "W[i,j] = D[i,j] * E[i,j]",
        {"D": "ss", "E": "ss"},
        TWO,
        commands("parallelize i threads"),
        differs="refused by TACO, which would merge on threads",
    ),
    Port(
        "parallelize/precondition",
        "A[i,j] = W[i,j]",
        {"W": "dd"},
        TWO,
        commands("parallelize i threads"),
        differs=CONVERTED,
        wanted="csr",
    ),
    Port(
        "parallelize/precondition",
        "E[i,j] = W[i,j]",
        {"W": "dd"},
        TWO,
        commands("parallelize i threads"),
        differs=CONVERTED,
        wanted="dcsr",
    ),
    Port(
        "parallelize/precondition",
        "w[j] = W[i,j]",
        {"W": "dd"},
        TWO,
        commands("parallelize i threads"),
        r"elements of i add to the same w\[j\]",
    ),
    Port("parallelize/apply", "w[i] = b[i]", {"b": "s"}, V8, commands("parallelize i threads")),
    Port("parallelize/apply", "W[i,j] = A[i,j]", {"A": "ds"}, TWO, commands("parallelize i threads")),
    Port("parallelize/apply", "W[i,j] = A[i,j]", {"A": "ds"}, TWO, commands("parallelize j threads")),
    *(
        Port("reorderLoopsTopologically", text, formats, {n: s for n, s in THREE.items() if n in text}, wanted=wanted)
        for text, formats, wanted in (
            ("w[i] = b[i]", {"b": "s"}, "dense"),
            ("W[i,j] = A[i,j]", {"A": "ds"}, "dense"),
            ("W[i,j] = G[i,j]", {"G": "dd"}, "dense"),
            ("W[j,i] = G[i,j]", {"G": "dd"}, "dense"),
            ("W[i,j] = G[i,j] + A[i,j]", {"G": "dd", "A": "ds"}, "dense"),
            ("X[i,j,k] = V[i,j,k]", {"V": "ddd"}, "dense"),
            ("X[i,j,k] = Y[i,j,k]", {"Y": "sdd"}, "dense"),
            ("X[i,j,k] = Z[i,j,k]", {"Z": "dds"}, "dense"),
            ("Q[i,j,k] = R[i,j,k]", {"R": "ddd"}, "dense"),
        )
    ),
    Port(
        "insertTemporaries/spmm",
        "A[i,j] = B[i,k] * C[k,j]",
        {"B": "ds", "C": "ds"},
        THREE,
        (*commands("reorder i k j"), ("precompute", "B[i,k] * C[k,j]", "j", "jw", "w")),
    ),
)

TILE = "bound i ib 16 exact; split ib i0 i1 4"
PAIR = {"B": "d", "C": "d"}
PRODUCT = (("precompute", "B[i] * C[i]", "i1", "iw", "w"),)
FOUR = {"i": 4, "j": 3, "k": 5, "l": 2}
CUBES = {"i": 4, "j": 4, "k": 4, "l": 4}
TSPV, TSPV_FORMATS = "A[i,j] = B[i,j,k,l] * c[l] * c[k]", {"B": "dddd", "c": "s"}
TSPV_W = ("precompute", "B[i,j,k,l] * c[l]", ("i", "j", "k"), ("iw", "jw", "kw"), "ws")
DOT_W = "A = B[i] * C[i]"
WORKSPACES = (
    Port("workspaces.tile_vecElemMul_NoTail", "A[i] = B[i] * C[i]", PAIR, V16, (*commands(TILE), *PRODUCT)),
    Port(
        "workspaces.tile_vecElemMul_Tail1",
        "A[i] = B[i] * C[i]",
        PAIR,
        V16,
        (*commands("bound i ib 16 exact; split ib i0 i1 5"), *PRODUCT),
    ),
    Port(
        "workspaces.tile_vecElemMul_Tail2",
        "A[i] = B[i] * C[i]",
        PAIR,
        {"i": 17},
        (*commands("bound i ib 17 exact; split ib i0 i1 4"), *PRODUCT),
    ),
    Port("workspaces.tile_denseMatMul", "A[i] = B[i] * C[i]", PAIR, V16, (*commands(TILE), *PRODUCT)),
    Port(
        "workspaces.precompute2D_add",
        "A[i,j] = B[i,j] + C[i,j] + D[i,j]",
        {"B": "dd", "C": "dd", "D": "dd"},
        TWO,
        (("precompute", "B[i,j] + C[i,j]", ("i", "j"), ("iw", "jw"), "ws"),),
    ),
    Port(
        "workspaces.precompute4D_add",
        "A[i,j,k,l] = B[i,j,k,l] + C[i,j,k,l] + D[i,j,k,l]",
        {"B": "dddd", "C": "dddd", "D": "dddd"},
        FOUR,
        (("precompute", "B[i,j,k,l] + C[i,j,k,l]", ("i", "j", "k", "l"), ("iw", "jw", "kw", "lw"), "ws"),),
    ),
    Port(
        "workspaces.precompute4D_multireduce",
        "A[i,j] = B[i,j,k,l] * C[k,l,m] * D[m,n]",
        {"B": "dddd", "C": "ddd", "D": "dd"},
        {**FOUR, "m": 3, "n": 2},
        (
            ("reorder", "i", "j", "m", "n", "k", "l"),
            ("precompute", "B[i,j,k,l] * C[k,l,m]", ("i", "j", "m"), ("iw", "jw", "mw"), "ws1"),
            ("precompute", "ws1[i,j,m] * D[m,n]", ("i", "j"), ("iv", "jv"), "ws2"),
        ),
        differs="loops over m are put outside first",
    ),
    Port("workspaces.precompute3D_TspV", TSPV, TSPV_FORMATS, CUBES, (TSPV_W,)),
    Port(
        "workspaces.precompute3D_multipleWS",
        TSPV,
        TSPV_FORMATS,
        CUBES,
        (TSPV_W, ("precompute", "ws[i,j,k] * c[k]", ("i", "j"), ("iv", "jv"), "t")),
    ),
    Port("workspaces.precompute3D_renamedIVars_TspV", TSPV, TSPV_FORMATS, CUBES, (TSPV_W,)),
    Port(
        "workspaces.tile_dotProduct_1",
        DOT_W,
        PAIR,
        {"i": 64},
        (
            *commands("bound i ib 64 exact; split ib i0 i1 32"),
            ("precompute", "B[i] * C[i]", "i1", "iw", "w"),
            ("precompute", "B[i]", "iw", "ib1", "B_new"),
            ("precompute", "C[i]", "iw", "ic1", "C_new"),
        ),
    ),
    Port(
        "workspaces.tile_dotProduct_2",
        DOT_W,
        PAIR,
        {"i": 64},
        (
            ("precompute", "B[i] * C[i]", "i", "iw", "w"),
            ("precompute", "B[i]", "iw", "ib", "B_new"),
            ("precompute", "C[i]", "iw", "ic", "C_new"),
            *commands("split i i0 i1 32"),
        ),
    ),
    Port(
        "workspaces.tile_dotProduct_3",
        DOT_W,
        PAIR,
        {"i": 64},
        (
            *commands("bound i ib 64 exact; split ib i0 i1 32"),
            ("precompute", "B[i] * C[i]", "i0", "iw", "w"),
            ("precompute", "B[i]", "i1", "ib1", "B_new"),
            ("precompute", "C[i]", "i1", "ic1", "C_new"),
        ),
    ),
)
