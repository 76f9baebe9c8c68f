"""A layer of BERT, dense and with its pruned projections made sparse."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import GELU, LayerNorm, Linear, Module, TransformerEncoderLayer
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.operators.work import NOTHING, Work
from benchmarks.pruned_layers.contenders import OURS, Call, stepped
from benchmarks.pruned_layers.problem import DTYPES, TOLERANCE, Place, Problem, pattern
from benchmarks.support.cells import relative_error
from gnn_sparse_backend import nn

NOTES = {
    OURS: "the encoder layer of Linears after gsb.nn.sparsify",
    "linears": "the same encoder layer, dense: projections are torch.nn.Linear, as in Hugging Face's BERT",
    "torch": "torch.nn.TransformerEncoderLayer with the same weights",
}


class Encoder(Module):
    """An encoder layer (normalised after each half) whose projections are ``torch.nn.Linear``."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (Linear(width, width) for _ in range(4))
        self.up, self.down, self.activation = Linear(width, inner), Linear(inner, width), GELU()
        self.first, self.second = LayerNorm(width), LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        x = self.first(x + self.output(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        return self.second(x + self.down(self.activation(self.up(x))))


class BertProblem:
    """A place of a batch of sequences: width x inner features, heads, and what was kept of every projection."""

    def __init__(self, place: Place, heads: int, length: int) -> None:
        self.place, width, inner = place, place.columns, place.rows
        torch.manual_seed(place.seed)
        theirs = TransformerEncoderLayer(width, heads, inner, dropout=0.0, activation="gelu", batch_first=True)
        ours = Encoder(width, heads, inner)
        attention = theirs.self_attn
        sources = [*attention.in_proj_weight.chunk(3), attention.out_proj.weight, theirs.linear1.weight]
        layers = [ours.query, ours.key, ours.value, ours.output, ours.up, ours.down]
        with torch.no_grad():
            for number, (weight, layer) in enumerate(zip([*sources, theirs.linear2.weight], layers)):
                weight *= pattern(place.pattern, *weight.shape, place.density, place.seed + number)
                layer.weight.copy_(weight)
            biases = [*attention.in_proj_bias.chunk(3), attention.out_proj.bias]
            for bias, layer in zip([*biases, theirs.linear1.bias, theirs.linear2.bias], layers):
                layer.bias.copy_(bias)
        self.models = {"torch": theirs.to(DTYPES[place.precision]), "linears": ours.to(DTYPES[place.precision])}
        self.sparse = Encoder(width, heads, inner).to(place.dtype)
        self.sparse.load_state_dict(ours.state_dict())
        self.report = nn.sparsify(self.sparse)
        self.models[OURS] = self.sparse
        for model in self.models.values():
            model.train(place.op == "step")
        self.x = torch.randn(place.tokens // length, length, width).to(place.dtype).requires_grad_(place.op == "step")
        self.cotangent = torch.randn_like(self.x)

    def call_of(self, name: str) -> Call:
        """A call that gives (result,), in a step (result, gradient of x, then those of all parameters)."""
        return stepped(self, self.models[name], tuple(self.models[name].parameters()))

    def mismatch(self, answer: tuple[Tensor, ...]) -> str | None:
        """What is wrong with a result and the gradient of the input, by the dense layer in float64."""
        if not hasattr(self, "expected"):
            model = Encoder(self.place.columns, self.sparse.heads, self.place.rows).double()
            model.load_state_dict(self.models["linears"].state_dict())
            x = self.x.detach().double().requires_grad_()
            y = model(x)
            self.expected = y.detach(), *torch.autograd.grad(y, x, self.cotangent.double())
        for number, (found, wanted) in enumerate(zip(answer, self.expected)):
            error = relative_error(found, wanted)
            if not error < 2 * TOLERANCE[self.place.dtype]:
                return f"output {number} is off by {error:.2g}"
        return None

    def work(self) -> Work:
        """Of the projections; attention, norms and activation come on top."""
        place, found = self.place, NOTHING
        width, inner = place.columns, place.rows
        for rows, columns in [(width, width)] * 4 + [(inner, width), (width, inner)]:
            sizes = (place.pattern, place.op, place.precision, rows, columns, place.density, place.tokens, place.seed)
            found += Problem(Place(*sizes)).work()
        return found
