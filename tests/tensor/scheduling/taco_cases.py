"""What TACO's own tests of schedules ask for (tensor-compiler/taco, MIT licence), as data: by the name of the test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from tests.tensor.scheduling.cases import Case, Command

KINDS = {"d": "dense", "s": "compressed"}


@dataclass(frozen=True)
class Port:
    """A case of a test of TACO.

    test: its group and its name. formats: of each operand, by levels, d dense and s compressed, or a format of ours.
    refused: the words with which the last command is refused, or the expression where there are no commands.
    differs: what is said otherwise than in TACO.
    """

    test: str
    expression: str
    formats: dict[str, str]
    sizes: dict[str, int]
    commands: tuple[Command, ...] = ()
    refused: str = ""
    differs: str = ""
    wanted: Any = "dense"
    fill: int = 50
    on_gpu: bool = field(default=False)

    @property
    def case(self) -> Case:
        formats = {name: _format(each) for name, each in self.formats.items()}
        return Case(self.expression, formats, self.sizes, self.commands, self.fill, 1, self.wanted)


def _format(given: str) -> Any:
    if not set(given) <= set(KINDS):
        return given
    return "dense" if "s" not in given else tuple(KINDS[each] for each in given)


def commands(text: str) -> tuple[Command, ...]:
    """Commands, separated by semicolons, each a name and its arguments by spaces; a comma is in one argument."""
    found = []
    for each in filter(str.strip, text.split(";")):
        name, *given = each.split()
        found.append((name, *(int(a) if a.isdigit() else a for a in given)))
    return tuple(found)


COPIES = "a copy of the result for each element is for threads of the CPU"


def shuffled(port: Port) -> Port:
    """The same with a reduction by shuffles where TACO has a temporary one, of which it makes shuffles too."""
    found = tuple(
        (*each[:-1], "parallel_reduction") if each[0] == "parallelize" and each[-1] == "temporary" else each
        for each in port.commands
    )
    return replace(port, commands=found, refused="", differs="the threads of a warp reduce in parallel")


NO_MERGE = "without mergeby: there is no such command"
CONVERTED = "refused by TACO; here a result at the elements of an operand, or a dense one that is converted"
PART = r"i1 is a part of i; take pos\(i, ...\) first"

V8, V16 = {"i": 8}, {"i": 16}
VECTORS = "C[i] = A[i] * B[i]"
SPLIT = commands("split i i0 i1 4")
TILES = "split i i0 i1 2; split j j0 j1 2; split k k0 k1 2; reorder i0 j0 k0 i1 j1 k1"
DOT = "C = A[i] * B[i]"
TILED = "split i iX iY 2; split iX iX1 iX2 2; split iY iY1 iY2 2; reorder "
CUBE = "C[i,j,k] = A[i,j,k] + B[i,j,k]"
SPMV, SPMV_SIZES = "y[i] = A[i,j] * x[j]", {"i": 21, "j": 19}
CSR_AND_VECTOR = {"A": "ds", "x": "d"}
MERGED = "y[i] = A[i,j] * B[i,j] * x[j]"
MERGED_FORMATS, MERGED_SIZES = {"A": "ss", "B": "ds", "x": "s"}, {"i": 40, "j": 17}
LAST = "; parallelize thread thread temporary"
BLOCKS = "split i i0 i1 2; split i0 block thread 2; "

SCHEDULING = (
    Port("scheduling.splitIndexStmt", "a[i] = b[i]", {"b": "d"}, {"i": 3}, commands("split i i1 i2 2")),
    *(
        Port("scheduling.fuseDenseLoops", CUBE, {"A": "ddd", "B": "ddd"}, {"i": 4, "j": 4, "k": 4}, each, fill=100)
        for each in ((), commands("fuse i j f"), commands("fuse i j f; fuse f k g"))
    ),
    Port(
        "scheduling.lowerDenseMatrixMul",
        "C[i,j] = A[i,k] * B[k,j]",
        {"A": "dd", "B": "dd"},
        {"i": 4, "j": 4, "k": 4},
        commands(TILES),
    ),
    Port("scheduling.lowerSparseCopy", "C[i] = A[i]", {"A": "s"}, V8, SPLIT),
    Port("scheduling.lowerSparseMulDense", VECTORS, {"A": "s", "B": "d"}, V8, SPLIT),
    Port("scheduling.lowerSparseMulSparse", VECTORS, {"A": "s", "B": "s"}, V8, SPLIT),
    Port(
        "scheduling.precomputeIndependentIndexVars",
        "A[i] = B[i] + C[i]",
        {"B": "d", "C": "d"},
        V16,
        (("precompute", "B[i] + C[i]", "i", "iw", "w"),),
    ),
    Port(
        "scheduling.precomputeIndependentIndexVarsSplit",
        "A[i] = B[i] + C[i]",
        {"B": "d", "C": "d"},
        V16,
        (("precompute", "B[i] + C[i]", "i", "iw", "w"),),
    ),
    Port("scheduling.lowerSparseAddSparse", "C[i] = A[i] + B[i]", {"A": "s", "B": "s"}, V8, SPLIT),
    *(
        Port(
            "scheduling.lowerSparseMatrixMul",
            "C[i,j] = A[i,k] * B[k,j]",
            {"A": "csr", "B": "csc"},
            {"i": 8, "j": 8, "k": 8},
            commands(f"{tiles}; {units}"),
            "thread want a number of elements that is known" if tiles == TILES and "block" in units else "",
            "" if tiles == TILES else "the extent of j is bound, as threads of a GPU want",
            on_gpu="block" in units,
        )
        for tiles, units in (
            (TILES, "parallelize i0 threads atomics"),
            (TILES, "parallelize i0 block none; parallelize j0 thread atomics"),
            (
                f"bound j jb 8 exact; {TILES.replace('split j', 'split jb')}",
                "parallelize i0 block; parallelize j0 thread",
            ),
        )
    ),
    *(
        Port(
            f"scheduling.parallelize{race.title()}Reduction",
            DOT,
            {"A": "s", "B": "d"},
            V8,
            commands(text.replace("RACE", race if race == "temporary" else "atomics").removesuffix(LAST)),
            "is for threads of the CPU" if race == "temporary" and "block" in text else "",
            on_gpu="block" in text,
        )
        for race in ("atomic", "temporary")
        for text in (
            "split i i0 i1 2; parallelize i0 threads RACE",
            BLOCKS + "parallelize block block RACE; parallelize thread thread RACE",
        )
    ),
    *(
        Port("scheduling.multilevel_tiling", VECTORS, {"A": "s", "B": "s"}, V8, commands(f"{TILED}{' '.join(each)}"))
        for each in permutations(("iX1", "iX2", "iY1", "iY2"))
        if each[-1] == "iY2"
    ),
    Port("scheduling.pos_noop", "C = A[i]", {"A": "s"}, V8, commands("pos i ipos A[i]")),
    Port("scheduling.pos_mul_dense", VECTORS, {"A": "s", "B": "d"}, V8, commands("pos i ipos A[i]")),
    Port("scheduling.pos_mul_sparse", VECTORS, {"A": "s", "B": "s"}, V8, commands("pos i ipos A[i]")),
    Port(
        "scheduling.pos_mul_dense_split",
        VECTORS,
        {"A": "s", "B": "d"},
        V8,
        commands("pos i ipos A[i]; split ipos p0 p1 2"),
    ),
    Port(
        "scheduling.pos_tile_coord_and_pos",
        VECTORS,
        {"A": "s", "B": "d"},
        V8,
        commands("split i i0 i1 4; pos i1 ipos A[i]"),
        PART,
    ),
    Port(
        "scheduling.spmv_warp_per_row",
        SPMV,
        CSR_AND_VECTOR,
        {"i": 35, "j": 20},
        commands(
            "split i block block_row 32; split block_row warp_row warp 8; pos j jpos A[i,j];"
            "split jpos element thread 32;"
            "reorder block warp warp_row thread element; parallelize block block none; parallelize warp warp none;"
            "parallelize thread thread temporary"
        ),
        COPIES,
        on_gpu=True,
    ),
    Port("scheduling.dense_pos_error", "y[i] = x[i]", {"x": "d"}, V8, commands("pos i p x[i]"), "x is dense"),
    Port(
        "scheduling.pos_var_not_in_access", "y[i] = x[i]", {"x": "s"}, V8, commands("pos j p x[i]"), "no loop over 'j'"
    ),
    Port("scheduling.pos_wrong_access", "y[i] = x[i]", {"x": "s"}, V8, commands("pos i p x[j]"), "no access"),
    Port("scheduling.pos_wrong_access", "y[i] = x[i]", {"x": "s"}, V8, commands("pos i p y[i]"), "no access"),
    Port(
        "scheduling_eval_test.spmv_fuse",
        SPMV,
        CSR_AND_VECTOR,
        SPMV_SIZES,
        commands(
            "fuse i j f; pos f fpos A[i,j]; split fpos block fpos1 2048; split fpos1 warp fpos2 256;"
            "split fpos2 thread thread_nz 8; reorder block warp thread thread_nz; parallelize block block atomics;"
            "parallelize warp warp atomics; parallelize thread thread atomics"
        ),
        differs="the race of the blocks is ignored there, and atomic here",
        on_gpu=True,
    ),
    *(
        Port("scheduling.divide", SPMV, CSR_AND_VECTOR, {"i": 32, "j": 16}, commands(each), fill=20)
        for each in (
            "divide i i1 i2 2",
            "divide i i1 i2 3",
            "fuse i j f; pos f fpos A[i,j]; divide fpos f0 f1 2; split f1 i1 i2 4",
            "fuse i j f; pos f fpos A[i,j]; divide fpos f0 f1 4; split f1 i1 i2 16; split i2 i3 i4 8",
        )
    ),
    *(
        Port("scheduling.mergeby", MERGED, MERGED_FORMATS, MERGED_SIZES, each, differs=NO_MERGE)
        for each in (
            (),
            commands("split i i1 i2 16"),
            commands("split i i1 i2 32; unroll i2"),
            commands("pos i ipos A[i,j]"),
            commands("parallelize i threads"),
        )
    ),
)
SCHEDULING = (*SCHEDULING, *map(shuffled, (port for port in SCHEDULING if port.refused == COPIES)))
