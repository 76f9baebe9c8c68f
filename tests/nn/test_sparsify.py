"""Models whose dense layers are replaced by sparse ones, and put back."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Linear, Module, MultiheadAttention, Sequential, TransformerEncoderLayer
from torch.nn.utils import prune

from gnn_sparse_backend.nn import SparseLinear, densify, sparsify


def zeroed(model: Module, density: float) -> Module:
    torch.manual_seed(0)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, Linear):
                layer.weight.mul_(torch.rand(layer.weight.shape) < density)
    return model


def test_layers_are_replaced_where_it_pays_and_put_back():
    model = zeroed(Sequential(Linear(160, 320), torch.nn.GELU(), Linear(320, 160)), 0.05)
    model.append(Linear(160, 3))
    x = torch.randn(6, 160)
    expected = model(x)
    found = sparsify(model)
    assert found.replaced == ("0", "2") and isinstance(model[0], SparseLinear) and type(model[3]) is Linear
    assert [each.reason for each in found.decisions] == ["", "", "predicted under 1.05 times the dense product"]
    torch.testing.assert_close(model(x), expected)
    lines = str(found).splitlines()
    assert lines[0].startswith("2 of 3 layers are sparse") and "320 x 160" in str(found)
    with torch.no_grad():
        model[0].values.mul_(2.0)
    learnt = model(x)
    assert densify(model) is model and all(type(each) is not SparseLinear for each in model.modules())
    torch.testing.assert_close(model(x), learnt)


def test_states_of_sparse_and_dense_models_are_the_same():
    dense, other = (zeroed(Sequential(Linear(160, 320), Linear(320, 160)), 0.05) for _ in range(2))
    assert sparsify(other).replaced == ("0", "1")
    other.load_state_dict(dense.state_dict())
    dense.load_state_dict(other.state_dict())
    assert other.state_dict().keys() == dense.state_dict().keys()


def test_what_other_code_reads_stays():
    class Tied(Module):
        def __init__(self):
            super().__init__()
            self.attention = MultiheadAttention(16, 2)
            self.first, self.second = Linear(16, 16), Linear(16, 16)
            self.second.weight = self.first.weight

    found = sparsify(zeroed(Tied(), 0.01))
    assert found.replaced == ()
    reasons = {each.name: each.reason for each in found.decisions}
    assert "whose weight other code reads" in reasons["attention.out_proj"]
    assert reasons["first"] == reasons["second"] == "shares a parameter with another layer"


def test_a_layer_in_two_places_stays_one():
    layer = zeroed(Linear(256, 256), 0.05)
    model = Sequential(layer, torch.nn.ReLU(), layer)
    assert sparsify(model).replaced == ("0", "2") and model[0] is model[2]
    densify(model)
    assert type(model[0]) is Linear and model[0] is model[2]


def test_an_encoder_layer_of_pytorch_runs_sparse_in_inference(calls_to):
    layer = zeroed(TransformerEncoderLayer(128, 2, 512, batch_first=True), 0.05).eval()
    x = torch.randn(2, 5, 128)
    with torch.no_grad():
        expected = layer(x)
        assert sparsify(layer).replaced == ("linear1", "linear2")
        calls = calls_to(SparseLinear, "forward")
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)
        assert [call.arguments[0] for call in calls] == [layer.linear1, layer.linear2]
        densify(layer)
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)


def test_masks_and_choices():
    model = Sequential(Linear(160, 160), Linear(160, 160))
    mask = torch.zeros(160, 160, dtype=torch.bool)
    mask[3, 4] = True
    found = sparsify(model, masks={"0": mask}, only=lambda name, layer: name == "0")
    assert found.replaced == ("0",) and model[0].nnz == 1 and found.decisions[1].reason == "left out by only="
    prune.random_unstructured(model[1], "weight", amount=0.95)
    assert sparsify(model).replaced == ("1",)


def test_bad_input_is_quoted():
    with pytest.raises(TypeError, match="got Linear; SparseLinear.from_dense"):
        sparsify(Linear(3, 3))
    with pytest.raises(ValueError, match=r"masks for \['head'\], but the model's layers are \['0'\]"):
        sparsify(Sequential(Linear(3, 3)), masks={"head": torch.ones(3, 3)})


def test_blocks_are_found_and_reported():
    layer = Linear(128, 256)
    with torch.no_grad():
        layer.weight[:, 32:] = 0.0
        layer.weight[:128] = 0.0
    model = Sequential(layer)
    x = torch.randn(3, 128)
    expected = model(x)
    found = sparsify(model)
    assert [each.format for each in found.decisions] == ["bsr(32)"] == [model[0].format] and "bsr(32)" in str(found)
    torch.testing.assert_close(model(x), expected)
