"""Products of tiles of bfloat16 numbers with float32 sums, in the tile registers of AMX (``tdpbf16ps``).

A register has 16 rows of 64 bytes at most (Intel SDM, volume 1, chapter 18). A product adds to a tile of 16 x 16 sums
that of 16 rows with ``terms`` numbers each and ``terms`` numbers for each of 16 columns, which lie in pairs: a row of
this operand has two terms of all columns, side by side. Products are exact and added in pairs, in the order of the
terms; numbers below the smallest normal one are taken for zero.

The text is LLVM's, with registers by number: LLVM's own type of tiles is unknown to TVM. Each thread sets its registers
up before it uses any and gives them back behind, as other libraries in the process set up their own.
"""

from __future__ import annotations

from collections.abc import Collection

REGISTERS = 8
ROWS, LANES = 16, 16
"""Rows and columns of a tile of sums."""
TERMS = 32
"""Most terms of a product."""
FEATURES = (("amx-bf16", "amx-tile"),)
"""What the processor must have, in LLVM's spelling; that the operating system lets this process use it is checked where
the processor is looked at.
"""
PREFIX = "gsb_amx_"


def begin_name(sums: int, left: int, right: int, terms: int) -> str:
    """Name of the function () that sets up registers: those of sums first, then those of left and right operands."""
    return f"{PREFIX}begin_{sums}_{left}_{right}_{terms}"


def end_name() -> str:
    """Name of the function () that gives the registers back."""
    return f"{PREFIX}end"


def zero_name(register: int) -> str:
    """Name of the function () that fills a tile with zeros."""
    return f"{PREFIX}zero_{register}"


def load_name(register: int) -> str:
    """Name of the tile load (first row, second row); the row stride is second minus first."""
    return f"{PREFIX}load_{register}"


def store_name(register: int) -> str:
    """Name of the tile store (first row, second row); the row stride is second minus first."""
    return f"{PREFIX}store_{register}"


def product_name(sums: int, left: int, right: int) -> str:
    """Name of the function () that adds a product of two registers to a register of sums."""
    return f"{PREFIX}product_{sums}_{left}_{right}"


def llvm_text(names: Collection[str], features: Collection[str] = ()) -> str:
    """The functions of these names, for LLVM to put for their calls."""
    declared: set[str] = set()
    functions = [_function(name, declared) for name in sorted(names)]
    return "".join([*sorted(declared), *functions])


_STEP = "  %a = ptrtoint ptr %first to i64\n  %b = ptrtoint ptr %second to i64\n  %step = sub i64 %b, %a\n"


def _function(name: str, declared: set[str]) -> str:
    what, *numbers = name.removeprefix(PREFIX).split("_")
    before = parameters = types = given = ""
    match what, list(map(int, numbers)):
        case "begin", [sums, left, right, terms]:
            before = f"@{name}_table = internal unnamed_addr constant [64 x i8] [{_table(sums, left, right, terms)}]\n"
            intrinsic, types, given = "ldtilecfg", "ptr", f"ptr @{name}_table"
        case "end", []:
            intrinsic = "tilerelease"
        case "zero", [register]:
            intrinsic, types, given = "tilezero", "i8", f"i8 {register}"
        case "product", registers:
            intrinsic, types, given = "tdpbf16ps", "i8, i8, i8", ", ".join(f"i8 {each}" for each in registers)
        case "load" | "store", [register]:
            intrinsic = "tileloadd64" if what == "load" else "tilestored64"
            parameters, types, given = (
                "ptr %first, ptr %second",
                "i8, ptr, i64",
                f"i8 {register}, ptr %first, i64 %step",
            )
        case _:
            raise ValueError(f"there is no tile function {name!r}")
    declared.add(f"declare void @llvm.x86.{intrinsic}({types})\n")
    return (
        f"{before}define linkonce_odr hidden void @{name}({parameters}) alwaysinline nounwind {{\n"
        f"{_STEP if parameters else ''}  call void @llvm.x86.{intrinsic}({given})\n"
        "  ret void\n}\n"
    )


def _table(sums: int, left: int, right: int, terms: int) -> str:
    """Palette 1, no row to go on from, 14 reserved bytes, bytes of a row of 16 registers, and rows of each."""
    shapes = [(ROWS, 4 * LANES)] * sums + [(ROWS, 2 * terms)] * left + [(terms // 2, 4 * LANES)] * right
    shapes += [(0, 0)] * (16 - len(shapes))
    content = [1, *[0] * 15, *(byte for _, width in shapes for byte in (width & 255, width >> 8))]
    return ", ".join(f"i8 {byte}" for byte in (*content, *(rows for rows, _ in shapes)))
