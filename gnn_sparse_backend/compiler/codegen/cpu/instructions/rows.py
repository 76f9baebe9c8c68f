"""Functions that have the first two rows of each operand, in LLVM's language, and where the others lie."""

from __future__ import annotations

from collections.abc import Callable, Collection


def step(which: str) -> list[str]:
    """Lines that compute ``%{which}.step``, the bytes from a row to the next."""
    return [
        f"%{which}.from = ptrtoint ptr %{which} to i64",
        f"%{which}.to = ptrtoint ptr %{which}.second to i64",
        f"%{which}.step = sub i64 %{which}.to, %{which}.from",
    ]


def row(which: str, at: int) -> list[str]:
    """Lines that compute ``%{which}.p{at}``, the address of a row."""
    return [
        f"%{which}.o{at} = mul i64 %{which}.step, {at}",
        f"%{which}.p{at} = getelementptr i8, ptr %{which}, i64 %{which}.o{at}",
    ]


def load(name: str, start: str, offset: int, kind: str) -> str:
    """Line that loads ``%{name}`` from ``offset`` bytes behind an address; nothing else has that address."""
    return (
        f"%{name}.at = getelementptr i8, ptr %{start}, i64 {offset}\n  %{name} = load {kind}, ptr %{name}.at, align 2"
    )


def function(name: str, operands: tuple[str, ...], lines: list[str]) -> str:
    """The function of these lines, labels among them. Parameters: the first two rows of each operand."""
    body = "".join(f"{line}\n" if line.endswith(":") else f"  {line}\n" for line in lines)
    parameters = ", ".join(f"ptr %{x}, ptr %{x}.second" for x in operands)
    return f"define linkonce_odr hidden void @{name}({parameters}) alwaysinline nounwind {{\n{body}}}\n"


def in_loops(names: Collection[str], first: int, product: Callable[[str, int], str]) -> str:
    """product(name, loop): the functions of these names, each with a loop over terms of a number beyond ``first``.

    LLVM is told not to write the loops out: in each of many calls that is more code than a cache holds.
    """
    numbered = dict(enumerate(sorted(names), first + 1))
    products = [product(name, loop) for loop, name in numbered.items()]
    loops = [f"!{loop} = distinct !{{!{loop}, !{first}}}\n" for loop in numbered]
    return "".join([*products, f'!{first} = !{{!"llvm.loop.unroll.disable"}}\n', *loops])
