"""A table of a model's layers."""

from __future__ import annotations

from typing import Any

from torch.nn import Module, ModuleList, Sequential


def summary(model: Module, summary_input: Any) -> tuple[int, int]:
    """Print the modules that a forward pass calls, with the shapes of their results and their numbers of parameters.

    Returns: how many parameters the model has, and how many are trained.
    """
    lines: list[str] = []

    def note(module: Module, inputs: Any, output: Any) -> None:
        results = output if isinstance(output, (list, tuple)) else [output]
        shapes = ", ".join(str(list(each.shape)) for each in results)
        own = sum(each.numel() for each in module.parameters(recurse=False))
        lines.append(f"{f'{type(module).__name__}-{len(lines) + 1}':<44} {shapes:>24} {own:>12,}")

    modules = [each for each in model.modules() if not isinstance(each, (Sequential, ModuleList))]
    hooks = [each.register_forward_hook(note) for each in modules]
    try:
        model(summary_input)
    finally:
        for hook in hooks:
            hook.remove()
    every = sum(each.numel() for each in model.parameters())
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    print(f"{'layer':<44} {'result':>24} {'parameters':>12}", *lines, sep="\n")
    print(f"{every:,} parameters, {trained:,} of them trained")
    return every, trained
