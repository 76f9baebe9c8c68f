"""The dense layers of a model replaced by sparse ones where that pays, and put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.table import Table
from torch import Tensor
from torch.nn import Linear, Module, TransformerEncoder, TransformerEncoderLayer

from ..frozen import dataclass
from ..runtime.text import render
from .sparse_linear import SparseLinear, kept_of, matrix_of
from .weight_format import weight_format


@dataclass(frozen=True)
class Decision:
    """What became of one layer.

    name: in the model. shape: (out_features, in_features). density: share of its weights that are not zero. predicted:
    how many times faster the best sparse product is on many rows, as predicted or measured (``gsb.tune_format``).
    format: what it has now, None where it was left as it is, for the ``reason``.
    """

    name: str
    shape: tuple[int, int]
    density: float
    predicted: float
    format: str | None
    reason: str


@dataclass(frozen=True)
class Sparsified:
    """What `sparsify` did. ``str()`` is the table of all decisions."""

    decisions: tuple[Decision, ...]

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the layers that are sparse now."""
        return tuple(each.name for each in self.decisions if each.format is not None)

    def __str__(self) -> str:
        table = Table(title=f"{len(self.replaced)} of {len(self.decisions)} layers are sparse", title_justify="left")
        for heading in ("layer", "out x in", "non-zeros", "predicted", "format", "reason"):
            table.add_column(heading, justify="right" if heading in ("non-zeros", "predicted") else "left")
        for each in self.decisions:
            size = f"{each.shape[0]:,} x {each.shape[1]:,}"
            predicted = f"{each.predicted:.2f} x"
            table.add_row(each.name, size, f"{each.density:.1%}", predicted, each.format or "dense", each.reason)
        return render(table)


def sparsify(
    model: Module,
    *,
    masks: Mapping[str, Tensor] | None = None,
    at_least: float = 1.05,
    only: Callable[[str, Linear], bool] = lambda name, layer: True,
) -> Sparsified:
    """Replace the ``torch.nn.Linear`` layers of a pruned model by `SparseLinear`, where that is predicted to be faster.

    The model is changed in place; parameters of replaced layers are new ones, so make its optimiser afterwards.
    `densify` puts dense layers back, with what was learnt since.

    Args:
        model: with layers whose pruned weights are zero, or are masked by ``torch.nn.utils.prune``.
        masks: for layers by name, (out_features, in_features), True where a weight is kept.
        at_least: how many times faster a sparse layer must be, as predicted.
        only: of a name and a layer, whether it may be replaced.

    Returns each decision with its reason.

    Raises TypeError where the model is itself a ``Linear`` (use `SparseLinear.from_dense`), ValueError where a mask is
    for no layer of the model.
    """
    if not isinstance(model, Module) or isinstance(model, Linear):
        raise TypeError(
            f"sparsify: a module with layers in it is wanted, got {type(model).__name__}; SparseLinear.from_dense "
            "makes one layer sparse"
        )
    masks = dict(masks or {})
    layers = {name: layer for name, layer in model.named_modules(remove_duplicate=False) if isinstance(layer, Linear)}
    if unknown := masks.keys() - layers.keys():
        raise ValueError(f"sparsify: masks for {sorted(unknown)}, but the model's layers are {sorted(layers)}")
    owners: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    made: dict[int, SparseLinear] = {}
    decisions = []
    for name, layer in layers.items():
        matrix = matrix_of(kept_of(layer, masks.get(name))[1])
        found = weight_format(matrix, layer.weight.dtype)
        reason = _against(name, layer, found.gain, at_least, owners, only)
        if not reason:
            if id(layer) not in made:
                made[id(layer)] = SparseLinear.from_dense(layer, masks.get(name), format=found.sparse)
            _put(model, name, made[id(layer)])
        density = matrix.num_edges / max(matrix.shape[0] * matrix.shape[1], 1)
        decisions.append(Decision(name, matrix.shape, density, found.gain, None if reason else found.sparse, reason))
    if made:
        _choose_nesting(model)
    return Sparsified(tuple(decisions))


def densify(model: Module) -> Module:
    """Put dense layers of the same values in the place of a model's sparse ones; the model, which is changed."""
    made: dict[int, Linear] = {}
    sparse = [
        (name, layer)
        for name, layer in model.named_modules(remove_duplicate=False)
        if isinstance(layer, SparseLinear) and name
    ]
    for name, layer in sparse:
        _put(model, name, made.setdefault(id(layer), layer.to_dense()))
    if made:
        _choose_nesting(model)
    return model


def _against(name: str, layer: Linear, gain: float, at_least: float, owners: Mapping[int, int], only) -> str:
    """Why a layer stays dense; "" where it need not."""
    if not only(name, layer):
        return "left out by only="
    if type(layer) is not Linear:
        return f"a {type(layer).__name__}, whose weight other code reads"
    if any(owners[id(each)] > 1 for each in layer.parameters(recurse=False)):
        return "shares a parameter with another layer"
    if gain < at_least:
        return f"predicted under {at_least:g} times the dense product"
    return ""


def _put(model: Module, name: str, layer: Module) -> None:
    where, _, own = name.rpartition(".")
    parent = model.get_submodule(where)
    setattr(parent, own, layer)
    if isinstance(parent, TransformerEncoderLayer):
        _choose_path(parent)


def _choose_path(layer: TransformerEncoderLayer) -> None:
    """PyTorch's fused layer of inference multiplies by dense weights: it is kept from running with sparse ones."""
    sparse = isinstance(layer.linear1, SparseLinear) or isinstance(layer.linear2, SparseLinear)
    if not hasattr(layer, "_dense_path"):
        layer._dense_path = layer.activation_relu_or_gelu
    layer.activation_relu_or_gelu = 0 if sparse else layer._dense_path


def _choose_nesting(model: Module) -> None:
    """PyTorch's encoders drop padded keys in inference by nested tensors, which sparse layers do not take."""
    for encoder in model.modules():
        if isinstance(encoder, TransformerEncoder):
            sparse = any(isinstance(each, SparseLinear) for each in encoder.modules())
            if not hasattr(encoder, "_dense_nesting"):
                encoder._dense_nesting = encoder.use_nested_tensor
            encoder.use_nested_tensor = encoder._dense_nesting and not sparse
