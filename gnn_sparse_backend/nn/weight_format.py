"""Which format a matrix of weights is multiplied in, decided at once: by what was measured, else by the cost model."""

from __future__ import annotations

import torch

from ..compiler.codegen import host_target
from ..formats.composed.decompose import FILL
from ..formats.composed.fills import stored_values
from ..formats.composed.spec import parse_formats, plain, readable
from ..frozen import dataclass
from ..planner.composed import DENSE, PieceCount, predicted, problem_of
from ..planner.database import database
from ..runtime.threads import planned_threads
from ..runtime.type_names import type_name
from ..structures.facts import content_hash
from ..structures.graph import Graph

TOKENS = 512
"""Rows of the input that is decided for, and whose measurements by ``gsb.tune_format`` count."""
CANDIDATES = ("csr", "bsr(32)", "bsr(16)", "bsr(8)")
"""What is thought of beside dense."""


@dataclass(frozen=True)
class WeightFormat:
    """sparse: words of the fastest format but dense. gain: how many times faster than the dense product it is.
    measured: whether by ``gsb.tune_format``, and not by the cost model.
    """

    sparse: str
    gain: float
    measured: bool

    @property
    def best(self) -> str:
        """The format, or ``"dense"``."""
        return self.sparse if self.gain > 1 else DENSE


def weight_format(matrix: Graph, dtype: torch.dtype) -> WeightFormat:
    """The format of the matrix of a linear layer, (out_features, in_features)."""
    problem = problem_of(matrix.shape, matrix.num_edges, TOKENS, type_name(dtype), planned_threads(), tokens=True)
    candidates = list(map(parse_formats, CANDIDATES))
    _, stored = stored_values(matrix.indptr, matrix.indices, matrix.shape, candidates, FILL)
    processor = host_target()
    seconds = {
        words: predicted(problem, [PieceCount(piece.side, piece.slots) for piece in pieces], processor)
        for words, pieces in zip(CANDIDATES, stored)
    }
    seconds[DENSE] = predicted(problem, None, processor)
    known = database().find(problem, lambda: content_hash(matrix.indptr, matrix.indices, None, matrix.shape))
    plans = () if known is None else known.seconds
    measured = {plain(each.formats): taken for each, taken in plans if each.formats == DENSE or readable(each.formats)}
    if DENSE in measured and len(measured) > 1:
        seconds = measured
    dense = seconds.pop(DENSE)
    sparse = min(seconds, key=seconds.__getitem__)
    return WeightFormat(sparse, dense / seconds[sparse], seconds.keys() <= measured.keys())
