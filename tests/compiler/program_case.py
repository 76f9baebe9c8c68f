"""A program of the library to be tested at every stage, with sizes to draw and what to put into arrays that have a
meaning of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gnn_sparse_backend.compiler.language.program import Program
from tests.compiler.structures import complete


@dataclass(frozen=True)
class Case:
    """make(index_dtype) gives the program; sizes(rng) its free sizes; fix(arguments, rng) mends drawn arrays."""

    make: Callable[[str], Program]
    sizes: Callable[[np.random.Generator], dict]
    outputs: tuple[str, ...]
    fix: Callable[[dict, np.random.Generator], None] = field(default=lambda arguments, rng: None)
    most: int = 4

    def arguments(self, program: Program, seed: int) -> dict[str, object]:
        rng = np.random.default_rng(seed)
        found = complete(program, rng, self.sizes(rng), most=self.most)
        self.fix(found, rng)
        for name in self.outputs:
            found[name] = np.full_like(found[name], np.nan)
        return found


class Adding(Case):
    """A program that adds to its outputs: they hold numbers before it runs."""

    def arguments(self, program: Program, seed: int) -> dict[str, object]:
        rng = np.random.default_rng(seed)
        found = complete(program, rng, self.sizes(rng), most=self.most)
        self.fix(found, rng)
        return found
