"""Arguments that several commands have, and what is wrong with them."""

from __future__ import annotations

import argparse

FORMATS = (
    ".npz with indptr and indices, or src and dst, and etype for operators on relations; SciPy's .npz; Matrix Market "
    ".mtx. Rows are destinations, columns sources."
)


def features_argument(command: argparse.ArgumentParser, several: bool) -> None:
    command.add_argument(
        "--features",
        type=width,
        nargs="+" if several else None,
        default=[64] if several else 64,
        metavar="F",
        help="width of the rows that are reduced (default: 64); 64x16 of operators with two widths, 8x16 of heads and "
        "their features, 64x16x4 of blocks or bases",
    )
    command.add_argument("--dtype", default="float32", help="float32 (default), float64, bfloat16 or float16")
    command.add_argument("--threads", type=positive, help="threads of the kernels (default: PyTorch's)")
    command.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where the kernels run (default: cpu)"
    )


def positive(text: str) -> int:
    """A positive whole number from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def width(text: str) -> int | tuple[int, ...]:
    """A positive whole number from the command line, or several with an x between them."""
    parts = text.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number, nor several with an x between them")
    return int(text) if len(parts) == 1 else tuple(map(int, parts))
