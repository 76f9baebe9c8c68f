"""Operators under the transforms of functions: those of `torch.func`, and forward mode with it and without.

What PyTorch wants of an operator there is an autograd function with rules of its own. All of these follow from what an
operator has anyway: its run, and its gradients, which are operators again.

The derivative along tangents is that of the gradients. With J the derivative of the results by the operands, the
gradients are J^T v for cotangents v, linear in these; what they send back of tangents t, as a function of v, is J t.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame
from torch._C._functorch import TransformType
from torch.autograd import Function, forward_ad
from torch.utils._pytree import tree_map

from .batched import for_each, in_batch, mapped

unwatched = torch._C.DisableTorchFunction
"""The context in which no mode or subclass of PyTorch's is told what is called: each is asked about every shape and
type, which takes longer than the rest of a call."""


def transformed() -> bool:
    """Whether a function is transformed now."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def in_library() -> bool:
    """Whether the innermost transform is one that ``torch.library`` has a rule for, and autograd functions or compiled
    programs have none.
    """
    stack, kind = torch._C._functorch.peek_interpreter_stack(), TransformType.Functionalize
    if torch.compiler.is_compiling():
        if forward_ad._current_level >= 0:
            return False
        kind = TransformType.Vmap
    return stack is not None and stack.key() == kind


in_library._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compiler would import all of Dynamo


def differentiated_again() -> bool:
    """Whether the derivative of a gradient may be asked for that is computed now."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0


class Transformed(Function):
    """An operator as a function of its tensors; ``library`` has its rules (`library.Library`)."""

    @staticmethod
    def forward(library, structure, values, *tensors):
        found = library.entry(*library.joined(structure, tensors, values))
        return found if isinstance(found, Tensor) else tuple(found)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.library, structure, values, *tensors = inputs
        ctx.structure = tuple(map(_as_it_was, structure))
        saved = ctx.library.keep(ctx, ctx.library.joined(ctx.structure, tensors, values), output)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        results = (output,) if isinstance(output, Tensor) else output
        shown = 1 if ctx.library.operator.library is not None else len(results)
        ctx.mark_non_differentiable(*results[shown:])
        ctx.shown = [(x.shape, {"dtype": x.dtype, "device": x.device}) for x in results[:shown]]
        ctx.hidden = len(results) - shown

    @staticmethod
    def backward(ctx, *cotangents):
        library, needed = ctx.library, ctx.needs_input_grad[3:]
        saved = tuple(map(living, ctx.saved_tensors))

        def gradients(*cotangents):
            return library.gradients(ctx, ctx.structure, saved, needed, cotangents)

        return None, None, None, *(for_each if in_batch(cotangents) else _of_one)(gradients, cotangents)

    @staticmethod
    def jvp(ctx, *tangents):
        library, tangents = ctx.library, tangents[3:]
        if library.operator.gradients is None:
            raise RuntimeError(f"{library.name} has no derivative, in forward mode neither")
        needed = tuple(x is not None for x in tangents)

        def derivative(*tangents):
            def gradients(*cotangents):
                found = library.gradients(ctx, ctx.structure, saved, needed, cotangents)
                return [torch.zeros_like(t) if x is None else x for x, t in zip(found, tangents) if t is not None]

            start = [torch.zeros(shape, **kind) for shape, kind in ctx.shown]
            return torch.func.vjp(gradients, *start)[1]([t for t in tangents if t is not None])

        with forward_ad._set_fwd_grad_enabled(True):  # of the transforms around this one, all of which are off here
            saved = [None if x is None else _without_tangent(x) for x in ctx.saved_tensors]
            found = (for_each if in_batch(tangents) else _of_one)(derivative, tangents)
        return found[0] if len(found) + ctx.hidden == 1 else (*found, *(None,) * ctx.hidden)

    @staticmethod
    def vmap(info, dims, *arguments):
        library = arguments[0]
        found = mapped(library.found, info.batch_size, dims[1:], arguments[1:])
        return found, tree_map(lambda x: 0, found)


def _run_alone(*functions: Any) -> None:
    """Have none of these, with all that it calls, compiled as a program of its own, where PyTorch can be told so."""
    strategy, action = (getattr(eval_frame, name, None) for name in ("_FrameExecStrategy", "_FrameAction"))
    if strategy is not None and action is not None and hasattr(eval_frame, "set_code_exec_strategy"):
        for function in functions:
            eval_frame.set_code_exec_strategy(function.__code__, strategy(action.SKIP, action.SKIP))


# what PyTorch cannot trace, it calls as it is, and then compiles what that calls
_run_alone(*(getattr(Transformed, rule) for rule in ("forward", "setup_context", "backward", "jvp", "vmap")))


def _as_it_was(x: Any) -> Any:
    """An argument of a structure, by which nothing is differentiated, without what derivatives have wrapped it into."""
    while isinstance(x, Tensor) and torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def living(x: Any) -> Any:
    """A tensor without what transforms that have ended wrapped it into, of which PyTorch takes off one at a time."""
    while isinstance(x, Tensor) and (inner := torch._C._functorch.unwrap_if_dead(x)) is not x:
        x = inner
    return x


def as_recorded(saved: Iterable[Tensor | None]) -> Sequence[Tensor | None]:
    """What a gradient reads, in a backward pass that is transformed: a transform records whatever it is given."""
    if torch.is_grad_enabled():
        return tuple(saved)
    return tuple([x if x is None else x.detach() for x in saved])


def _without_tangent(x: Tensor) -> Tensor:
    dual = forward_ad.unpack_dual(x)
    return x if dual.tangent is None else dual.primal


def _of_one(function, tensors):
    return function(*tensors)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Have PyTorch record what is computed, within an operator of ``torch.library`` too, where it leaves that out."""
    with contextlib.ExitStack() as stack:
        for key in (torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView):
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))
        yield


def pulled_back(
    function: Callable[[list[Tensor]], Any], operands: Sequence[Tensor], needed: Sequence[bool], cotangents: Any
) -> list[Tensor | None]:
    """The gradients of a function that is composed of operators; where gradients are recorded, such that they can be
    differentiated again."""

    def of_needed(*given: Tensor) -> Any:
        own = iter(given)
        return function([next(own) if wanted else x for x, wanted in zip(operands, needed)])

    given = [x for x, wanted in zip(operands, needed) if wanted]
    if transformed():
        out, back = torch.func.vjp(of_needed, *given)
        found = iter(back(cotangents if isinstance(out, Tensor) else list(cotangents)))
    else:
        again = torch.is_grad_enabled()
        with torch.enable_grad(), recording():
            # one tensor may stand for several operands: each of them a view of its own
            own = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in given]
            found = iter(torch.autograd.grad(of_needed(*own), own, cotangents, create_graph=again))
    return [next(found) if wanted else None for wanted in needed]
