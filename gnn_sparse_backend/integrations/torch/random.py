"""Which draws of PyTorch are ours: those of mt19937 on a CPU, of so many numbers that they are worth it."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter
from torch.overrides import has_torch_function_unary

from ...ops.random import dropout
from ...ops.random.draws import torch_draws_so
from ...structures.checks import FLOATING
from ..core.refusal import PASS, Boundary, Refusal
from ..scopes import transformed
from .rectified import dropout_of_unit, follows_unit

LEAST = 4096
"""Numbers below which PyTorch draws as fast: to take a generator's state and put it back costs what 1000 do."""
PLAIN = (Tensor, Parameter)
_TRACED = (FakeTensor, FunctionalTensor)
"""Types of tensors in programs that are being compiled, for which nothing is drawn."""
_REAL = FLOATING | {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


class TorchHost(Boundary):
    name = "torch"


HOST = TorchHost()


def dropout_run(name: str):
    """What is asked in the place of ``torch._VF.<name>`` and ``torch.<name>``."""
    alpha, feature, inplace = "alpha" in name, "feature" in name, name.endswith("_")

    def run(input, p, train):
        if not train or not 0 < p < 1:
            return PASS
        if (found := _refuse(input, FLOATING)) is not None:
            return found
        if not (alpha or feature or inplace):
            return (dropout_of_unit if follows_unit(input) else dropout.dropout)(input, p), name
        if feature and (input.dim() < 2 or input.shape[0] * input.shape[1] < LEAST):
            return PASS
        return dropout.dropout_by_noise(input, p, alpha, feature, inplace), name

    return run


def native_dropout(input, p, train):
    """In the place of ``torch.native_dropout``."""
    if train is not True or not 0 <= p < 1:
        return PASS
    if (found := _refuse(input, FLOATING)) is not None:
        return found
    return dropout.native_dropout(input, p), "native_dropout"


def bernoulli_(self, p=0.5, *, generator=None):
    """In the place of ``Tensor.bernoulli_``."""
    found = _refuse(self, _REAL) or _refuse_draw(self, p, generator)
    if found is not None:
        return found
    if not _apart(self):
        return PASS
    return dropout.bernoulli_(self, p, generator), "bernoulli_"


def bernoulli(input, *args, **kwargs):
    """In the place of ``torch.bernoulli``, with one probability for all."""
    if (found := _refuse(input, _REAL)) is not None:
        return found
    p = args[0] if len(args) == 1 else kwargs.get("p", input)
    if len(args) > 1 or not kwargs.keys() <= {"p", "generator"}:
        return PASS
    result, generator = torch.empty_like(input, memory_format=torch.contiguous_format), kwargs.get("generator")
    if (found := _refuse_draw(input, p, generator)) is not None:
        return found
    return dropout.bernoulli_(result, p, generator), "bernoulli"


def _refuse(x, dtypes: frozenset[torch.dtype]) -> Refusal | None:
    if is_dynamo_compiling():  # PyTorch's own goes into the graph; counting would break it
        return PASS
    if type(x) not in PLAIN:
        if not isinstance(x, Tensor) or isinstance(x, _TRACED) or has_torch_function_unary(x):
            return PASS  # or what overrides it is asked first, and comes by here again
        return Refusal("missing, subclass or traced tensor")
    if x.numel() < LEAST:
        return PASS
    if (found := transformed()) is not None:
        return found
    if x.device.type != "cpu":
        return Refusal("the generator is not that of the CPU")
    if x.layout is not torch.strided or x.is_nested or any(getattr(x, "names", ())):  # no names from 2.13 on
        return Refusal("the tensor is sparse, nested or has names")
    if x.dtype not in dtypes:
        return Refusal(f"dtype {x.dtype}")
    if not torch_draws_so():
        return Refusal("PyTorch draws otherwise on this processor")
    return None


def _refuse_draw(x: Tensor, p, generator) -> Refusal | None:
    if isinstance(p, Tensor):
        return Refusal("a probability for each number")
    if not isinstance(p, (float, int)) or not 0 <= p <= 1 or not _is_of_cpu(generator):
        return PASS  # PyTorch's own error
    if x.requires_grad and torch.is_grad_enabled():
        return Refusal("a gradient of the numbers drawn may be asked for")
    return None


def _is_of_cpu(generator) -> bool:
    return generator is None or (isinstance(generator, Generator) and generator.device.type == "cpu")


def _apart(x: Tensor) -> bool:
    """Whether no two elements are the same memory, by strides that leave no doubt."""
    if x.is_contiguous():
        return True
    reach = 1  # of the axes so far, in elements
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.shape) if size > 1):
        if stride < reach:
            return False
        reach += stride * (size - 1)
    return True
