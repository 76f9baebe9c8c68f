"""Linear maps of node features that wait for what becomes of them.

A layer that maps its features first and then sums those of neighbours, alone or each times a number, has asked for
``A (X W)``. Inside ``watched`` the product waits: if the sum before it costs less by the rule of
`ops.message.linear_order`, X is summed, and the sum mapped. Whoever looks at the product, or does anything else with
it, has it computed as it was asked for.

To wait takes some 50 us. What becomes of a product is what became of that of the same matrix before, as a rule: one
that was looked at is the last of its matrix that waits, and one that went first is for as many rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import SymInt, Tensor
from torch.__future__ import get_swap_module_params_on_conversion
from torch.nn import Parameter, functional
from torch.utils.weak import WeakIdKeyDictionary

from ...ops.message.linear_order import Needed, needed_gradients, sums_first
from ..scopes.modes import computing, mode
from .ends import End, Host
from .recipes import PLAIN, Pointwise, Recipe

LINEAR = torch._C._nn.linear  # what ``F.linear`` is where nobody has replaced it
PRODUCTS = frozenset((LINEAR, torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__))
"""Functions of rows and of a matrix, of which that of a linear map has the features of the result first."""

ALWAYS = ()
_go_first: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""For each matrix, the `_case` in which its product last went before a sum; `ALWAYS` where the product was read."""


class Product(Recipe):
    """A linear map of rows, without a bias.

    function: of ``PRODUCTS``, that was called. autocast: the types that it was called under. chosen: whether it goes
    before a sum because the rule says so.
    """

    __slots__ = ("autocast", "chosen", "function")
    of_edges = False

    def __init__(
        self, host: Host, shape: torch.Size, dtype: torch.dtype, function: Callable, x: Tensor, matrix: Tensor
    ):
        super().__init__(host, shape, dtype, (x, matrix))
        self.function, self.autocast, self.chosen = function, _autocast(), False

    def ends(self):
        return ()

    def on(self, operands):
        again = Product(self.host, self.shape, self.dtype, self.function, *operands)
        again.autocast = self.autocast
        return again

    def of(self, rows: Tensor) -> Tensor:
        """Apply the linear map to other rows."""
        # looked up now: what the package puts in their place where it is faster
        function, matrix = functional.linear if self.function is LINEAR else torch.matmul, self.operands[1]
        enabled, dtype = self.autocast
        types = nullcontext() if self.autocast == _autocast() else torch.autocast("cpu", dtype, enabled)
        with computing(), types:
            return function(rows, matrix)

    def reference(self):
        x, matrix = self.operands
        if type(whole := _whole(matrix)) in PLAIN:
            _go_first[whole] = _case(x) if self.chosen else ALWAYS
        return self.of(x)


def product(host: Host, function: Callable, x: Tensor, matrix) -> Product | None:
    """The product of rows and a matrix, not computed; None where it had better be.

    Under checkpoints it had: what is computed again there must be what was computed at first.
    """
    if type(matrix) not in PLAIN or matrix.dim() != 2 or x.dim() != 2 or matrix.device != x.device or mode()[2]:
        return None
    if get_swap_module_params_on_conversion():  # parameters that are swapped must have no weak references
        return None
    whole = _whole(matrix)
    lasts = whole.is_leaf and (whole.requires_grad or type(whole) is Parameter)
    wide_out, wide_in = widths(function, matrix)
    if not lasts or wide_in != x.shape[1] or not wide_out or _go_first.get(whole) in (ALWAYS, _case(x)):
        return None
    enabled, dtype = _autocast()
    types = {x.dtype, matrix.dtype}
    if not (types <= {torch.float32, dtype} if enabled else len(types) == 1):
        return None
    return Product(host, torch.Size((x.shape[0], wide_out)), dtype if enabled else x.dtype, function, x, matrix)


def widths(function: Callable, matrix: Tensor) -> tuple[int, int]:
    """Features of the result, and of the rows, of a function of ``PRODUCTS``."""
    first, second = matrix.shape
    return (first, second) if function is LINEAR else (second, first)


def mapped_last(message: Pointwise, rows: End) -> tuple[Pointwise, Product] | None:
    """A message, and a map of its sums over the edges of each row, in the place of this one; None where that does not
    pay, or would not be the same.
    """
    waiting = [number for number, x in enumerate(message.operands) if type(x) not in PLAIN]
    if len(waiting) != 1 or not message.plain or len(message.inner) != 1:
        return None
    (at,) = waiting
    lazy, end, (width,) = message.operands[at]._recipe, message.places[at], message.inner
    others = [x for number, x in enumerate(message.operands) if number != at]
    narrow = all(dims in ((), (1,)) for number, dims in enumerate(message.dims) if number != at)
    if not lazy.pending() or type(end) is str or end.key == rows.key or message.dims[at] != (width,) or not narrow:
        return None
    if not message.term.linear_in(at):
        return None
    x, matrix = lazy.operands
    sizes = [known_size(size) for size in (rows.size, end.size, end.count)]
    needed = needed_by(x, matrix, *others)
    if None in sizes or not sums_first(*sizes, x.shape[1], width, message.dtype.itemsize, needed=needed):
        lazy.chosen = True
        return None
    operands, dims = list(message.operands), list(message.dims)
    operands[at], dims[at] = x, tuple(x.shape[1:])
    return message.viewed(torch.Size((end.count, *dims[at])), tuple(dims)).on(tuple(operands)), lazy


def needed_by(x: Tensor, matrix: Tensor, *weights: Tensor) -> Needed:
    """The gradients that are needed of these, which may be those of a compiled program."""
    return needed_gradients(*(getattr(each, "known", each) for each in (x, matrix, *weights)))


def known_size(size: int | SymInt) -> int | None:
    """A size; of one that a compiled program leaves open, that which the program was first compiled for, if any."""
    return size.node.hint if isinstance(size, SymInt) else size


def _case(x: Tensor) -> tuple:
    """What the rule looks at of the rows of a product, the graph apart."""
    return x.shape[0], torch.is_grad_enabled(), x.requires_grad


def _whole(matrix: Tensor) -> Tensor:
    """What a matrix is a view of."""
    return matrix if matrix._base is None else matrix._base


def _autocast() -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
