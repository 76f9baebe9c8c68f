"""Cases: an expression, what its operands are stored as and made from, commands, and what comes out of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.scheduling.statement import Statement
from gnn_sparse_backend.tensor.storage.format import as_format
from tests.tensor.dense_values import EXACT, Near, accesses, computed, functions, result_indices

Command = tuple[Any, ...]
WAYS = ("schedule", "evaluate", "einsum", "operators")
FLOATS = ("float64", "float32", "float16", "bfloat16")


class Given(NamedTuple):
    """What an operand is made from: "numpy", "torch", "scipy", "sparse" of PyTorch, or "coordinates" with duplicates
    and zeros."""

    made: str = "numpy"
    dtype: str = "float64"
    index_dtype: str | None = None


class Operand(NamedTuple):
    """What is passed; where a gradient is asked for, its leaf, and the part of a dense gradient that the leaf has."""

    passed: Any
    leaf: torch.Tensor | None = None
    part: Callable[[torch.Tensor], torch.Tensor] | None = None


@dataclass(frozen=True)
class Case:
    """An expression, the format of each operand, the extent of each index, and commands, to be tried in order.

    Operands whose names begin with P have powers of two, others small whole numbers, so that sums are exact in any
    order.

    fill: elements of a hundred that are not zero. wanted: the format of the result. way: of computing it, of `WAYS`;
    expressions of "operators" are those of Python. given: what operands are made from. gradient: that is compared too.
    """

    expression: str
    formats: dict[str, Any]
    sizes: dict[str, int]
    commands: tuple[Command, ...] = ()
    fill: int = 40
    seed: int = 0
    wanted: Any = "dense"
    way: str = "schedule"
    given: dict[str, Given] = field(default_factory=dict)
    gradient: bool = False

    def operands(self) -> dict[str, np.ndarray]:
        """The operands, as arrays of float64."""
        rng = np.random.default_rng(self.seed)
        found = {}
        for name, indices in accesses(self.expression):
            if name not in found:
                shape = tuple(self.sizes[index] for index in indices)
                there = rng.random(shape) < self.fill / 100
                if name.startswith("P"):
                    least = -1 if self.given.get(name, Given()).dtype in FLOATS else 0
                    values, there = 2.0 ** rng.integers(least, 3, shape), there | self._is_dense(name, len(shape))
                else:
                    values = rng.integers(-3, 4, shape)
                found[name] = np.where(there, values, 0).astype(np.float64)
        return found

    @property
    def dtype(self) -> str:
        """Of the result: NumPy's of the operands', bfloat16 of that alone; float64 of fractions of whole numbers."""
        names = {name for name, indices in accesses(self.expression) if indices or self._array(name)}
        types = {self.given.get(name, Given()).dtype for name in names} or {"float64"}
        numbers = {self.given.get(name, Given()).dtype for name, _ in accesses(self.expression) if name not in names}
        if types == {"bfloat16"}:
            return "bfloat16"
        found = str(np.result_type(*({"bfloat16": "float32"}.get(each, each) for each in types)))
        whole = not re.search(r"/|\d\.\d", self.expression) and functions(self.expression) <= set(EXACT)
        return found if found in FLOATS or (whole and not numbers & set(FLOATS)) else "float64"

    def _array(self, name: str) -> bool:
        """Whether an operand without indices is an array, not a number of Python."""
        return self.way == "operators" or self.given.get(name, Given()).made != "numpy"

    def _is_dense(self, name: str, modes: int) -> bool:
        return as_format(self.formats[name], modes).is_dense

    def near(self, dense: dict[str, torch.Tensor]) -> Near:
        """What PyTorch computes of dense operands in float64, and what a kernel may differ by."""
        accumulator = "float64" if self.dtype not in FLOATS[1:] else "float32"
        unit = torch.finfo(getattr(torch, accumulator)).eps
        if self.way == "operators":
            return Near.exactly(eval(self.python, {**FOR_PYTHON, **dense}), unit)
        found = computed(self.expression, dense, self.sizes, unit)
        exact = functions(self.expression) <= set(EXACT) and bool((found.size * 2**10 * unit < 1).all())
        return Near.exactly(found.value, unit) if exact else found  # whole numbers and halves are not rounded

    @property
    def python(self) -> str:
        """An expression of operators without indices."""
        return re.sub(r"\[.*?\]", "", self.expression)

    def expected(self) -> np.ndarray:
        """What PyTorch computes."""
        found: np.ndarray = self.near({name: torch.from_numpy(x) for name, x in self.operands().items()}).value.numpy()
        return found

    def made(self) -> dict[str, Operand]:
        """The operands as they are passed."""
        return {name: self._made(name, x) for name, x in self.operands().items()}

    def _made(self, name: str, x: np.ndarray) -> Operand:
        made, dtype, index_dtype = self.given.get(name, Given())
        format = self.formats[name]
        if not x.ndim and not self._array(name):
            return Operand(float(x) if dtype in FLOATS else int(x))
        kind, wants = getattr(torch, dtype), self.gradient and made in ("torch", "coordinates") and dtype in FLOATS[:2]
        values = torch.from_numpy(x).to(kind)
        more = {"index_dtype": index_dtype} if x.ndim else {}
        if made == "coordinates" and x.ndim:
            there = (x != 0) | (np.random.default_rng(self.seed + 1).random(x.shape) < 0.1)  # zeros are stored too
            at = [torch.from_numpy(np.tile(each, 2)) for each in np.nonzero(there)]
            v = values[torch.from_numpy(there)]
            leaf = torch.cat([2 * v, -v]).requires_grad_(wants)
            array = st.array((at, leaf), format, shape=x.shape, **more)
            return Operand(array, leaf, lambda whole: whole[tuple(at)]) if wants else Operand(array)
        if made == "scipy" and x.ndim == 2 and dtype not in ("float16", "bfloat16"):
            from scipy import sparse

            return Operand(st.array(sparse.coo_array(values.numpy()), format, **more))
        if made == "sparse" and x.ndim:
            return Operand(st.array(values.to_sparse(), format, **more))
        if made == "torch" or dtype == "bfloat16":
            leaf = values.requires_grad_(wants)
            stored = torch.from_numpy(np.asarray(x != 0)) | self._is_dense(name, x.ndim)
            passed = leaf if format == "dense" and self.way != "operators" else st.array(leaf, format, **more)
            return Operand(passed, leaf, lambda whole: torch.where(stored, whole, 0)) if wants else Operand(passed)
        passed = values.numpy()
        return Operand(passed if format == "dense" and self.way != "operators" else st.array(passed, format, **more))

    def statement(self) -> tuple[Statement, dict[str, Any]]:
        """The statement before any command, and its operands."""
        given = {name: each.passed for name, each in self.made().items()}
        return st.statement(self.expression, format=self.wanted, **given), given

    @property
    def subscripts(self) -> tuple[str, list[str]]:
        """Those of einsum for a product, and the names of its operands."""
        found = [(part.partition("[")[0], part.partition("[")[2][:-1]) for part in self._factors]
        inputs = ",".join(indices.replace(",", "") for _, indices in found)
        return f"{inputs}->{''.join(result_indices(self.expression))}", [name for name, _ in found]

    @property
    def _factors(self) -> list[str]:
        return self.expression.split(" = ")[1].split(" * ")


FOR_PYTHON: dict[str, Any] = {"__builtins__": {"abs": abs}}
