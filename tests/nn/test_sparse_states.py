"""Sparse linear layers where dense ones are saved, copied, trained in other ways, and read by other code."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch.nn import GELU, Embedding, Linear, Module, MultiheadAttention, Sequential, TransformerEncoder
from torch.nn import TransformerEncoderLayer as EncoderLayer
from torch.nn.utils import prune

from gnn_sparse_backend.nn import SparseLinear, densify, sparsify
from tests.nn.test_sparse_linear import drawn, pruned

FORMATS = ["csr", "dense", "bsr(2)"]


def zeroed(model: Module, density: float = 0.05, seed: int = 0) -> Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, Linear):
                layer.weight.mul_(torch.rand(layer.weight.shape, generator=generator) < density)
    return model


def kinds(model: Module) -> list[type]:
    return [type(each) for each in model.modules()]


def test_safetensors_hold_the_dense_state(tmp_path):
    files = pytest.importorskip("safetensors.torch")
    dense = zeroed(Sequential(Linear(30, 40), GELU(), Linear(40, 30)))
    sparse, again = copy.deepcopy(dense), copy.deepcopy(dense)
    sparsify(sparse, at_least=0)
    with torch.no_grad():
        sparse[0].values.mul_(3.0)
    files.save_model(sparse, str(tmp_path / "sparse"))
    loaded = files.load_file(str(tmp_path / "sparse"))
    assert {name: x.shape for name, x in loaded.items()} == {n: x.shape for n, x in dense.state_dict().items()}
    again.load_state_dict(loaded)
    torch.testing.assert_close(again(drawn(4, 30).float()), sparse(drawn(4, 30).float()))
    files.save_file(dense.state_dict(), str(tmp_path / "dense"))
    assert files.load_model(sparse, str(tmp_path / "dense")) == (set(), [])
    assert torch.equal(sparse[0].weight, dense[0].weight) and kinds(sparse).count(SparseLinear) == 2


def test_safetensors_of_one_layer_in_two_places(tmp_path):
    files = pytest.importorskip("safetensors.torch")
    layer = zeroed(Linear(30, 30))
    dense = Sequential(layer, GELU(), layer)
    sparse = copy.deepcopy(dense)
    assert len(sparsify(sparse, at_least=0).replaced) == 2 and sparse[0] is sparse[2]
    with torch.no_grad():
        sparse[0].values.mul_(3.0)
    files.save_model(sparse, str(tmp_path / "sparse"))
    files.load_model(dense, str(tmp_path / "sparse"))
    torch.testing.assert_close(dense(drawn(4, 30).float()), sparse(drawn(4, 30).float()))
    files.save_model(dense, str(tmp_path / "dense"))
    with torch.no_grad():
        sparse[0].values.zero_()
    files.load_model(sparse, str(tmp_path / "dense"))
    assert torch.equal(sparse[2].weight, dense[0].weight)


def test_weights_shared_with_an_embedding_stay_shared():
    model = Sequential(Embedding(40, 30), zeroed(Linear(30, 30)), zeroed(Linear(30, 40)))
    model[0].weight = model[2].weight
    assert sparsify(model, at_least=0).replaced == ("1",) and model[0].weight is model[2].weight
    densify(model)
    assert model[0].weight is model[2].weight


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("how", ["unstructured", "rows", "columns", "twice", "removed", "identity"])
def test_masks_of_pytorch(format, how):
    layer = Linear(12, 10, dtype=torch.float64)
    if how == "identity":
        prune.identity(layer, "weight")
    elif how in ("rows", "columns"):
        prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0 if how == "rows" else 1)
    else:
        prune.l1_unstructured(layer, "weight", amount=0.5)
    if how == "twice":
        prune.random_unstructured(layer, "weight", amount=0.5)
    if how == "removed":
        kept = layer.weight_mask.sum()
        prune.remove(layer, "weight")
    else:
        kept = layer.weight_mask.sum()
    sparse = SparseLinear.from_dense(layer, format=format)
    assert sparse.nnz == int(kept) == {"identity": 120, "twice": 30}.get(how, 60)
    x, y = (drawn(5, 12).requires_grad_() for _ in range(2))
    torch.testing.assert_close(sparse(x), layer(y))
    for found in (sparse(x), layer(y)):
        found.backward(drawn(5, 10, seed=3))
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(sparse.bias.grad, layer.bias.grad)
    if how == "rows":
        assert int((sparse.weight == 0).all(1).sum()) == 5


OPTIMISERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9, nesterov=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.01, weight_decay=0.5),
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.01, weight_decay=0.5, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, 0.01, momentum=0.5),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, 0.01),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_make_of_it_what_they_make_of_a_masked_layer(format, name):
    """Zeros stay zeros, and the weights that are left learn what they learn under a mask."""
    masked = pruned()
    sparse = SparseLinear.from_dense(masked, format=format)
    kept = masked.weight.detach() != 0
    prune.custom_from_mask(masked, "weight", kept)
    for layer in (masked, sparse):
        optimiser = OPTIMISERS[name](layer.parameters())
        for seed in range(5):
            for part in range(2):  # gradients of two batches add up
                layer(drawn(8, 7, seed=2 * seed + part)).square().sum().backward()
            optimiser.step()
            optimiser.zero_grad()
    assert torch.equal(sparse.weight != 0, kept)
    torch.testing.assert_close(sparse.weight, masked.weight_orig * kept)
    torch.testing.assert_close(sparse.bias, masked.bias)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save"])
def test_copies_are_whole_and_apart(format, how):
    sparse = SparseLinear.from_dense(pruned(), format=format)
    x = drawn(3, 7)
    expected = sparse(x).detach()
    if how == "deepcopy":
        other = copy.deepcopy(sparse)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(sparse))
    else:
        file = io.BytesIO()
        torch.save(sparse, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert (other.nnz, other.format, str(other)) == (sparse.nnz, sparse.format, str(sparse))
    other(x).sum().backward()
    assert other.values.grad is not None and sparse.values.grad is None
    with torch.no_grad():
        other.values.zero_()
    torch.testing.assert_close(sparse(x), expected)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_to_another_type_and_back(format, dtype):
    dense = pruned()
    sparse = SparseLinear.from_dense(dense, format=format)
    assert sparse.to(dtype) is sparse and sparse.values.dtype is sparse.bias.dtype is dtype
    assert not sparse.indices.is_floating_point() and sparse.to_dense().weight.dtype is dtype
    found = sparse(drawn(3, 7, dtype=dtype))
    expected = copy.deepcopy(dense).to(dtype)(drawn(3, 7, dtype=dtype))
    assert found.dtype is dtype
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(sparse.double().weight, dense.weight.to(dtype).double())


def test_a_layer_without_weights_gives_its_bias():
    dense = Linear(6, 4)
    sparse = SparseLinear.from_dense(dense, torch.zeros(4, 6), format="csr")
    x = torch.randn(3, 6, requires_grad=True)
    y = sparse(x)
    y.sum().backward()
    assert torch.equal(y, dense.bias.expand(3, 4)) and x.grad.count_nonzero() == 0
    assert sparse.bias.grad.tolist() == [3.0] * 4 and sparse.values.grad.shape == (0,)


MODES = [torch.inference_mode, torch.no_grad, torch.enable_grad]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_of_pytorch_is_the_same(mode, training, norm_first):
    """In evaluation PyTorch has fused layers that read dense weights, in inference others."""
    dense = zeroed(EncoderLayer(16, 2, 64, dropout=0.0, batch_first=True, norm_first=norm_first)).train(training)
    sparse = copy.deepcopy(dense)
    assert sparsify(sparse, at_least=0).replaced == ("linear1", "linear2")
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    with mode():
        torch.testing.assert_close(sparse(x), dense(x), rtol=1e-5, atol=1e-5)
        assert kinds(densify(sparse)) == kinds(dense)
        torch.testing.assert_close(sparse(x), dense(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_of_pytorch_with_padding_is_the_same(mode):
    """In inference it drops padded keys by nested tensors, of which sparse layers know nothing."""
    dense = TransformerEncoder(zeroed(EncoderLayer(16, 2, 64, batch_first=True)), 2).eval()
    sparse, padding = copy.deepcopy(dense), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    sparsify(sparse, at_least=0, only=lambda name, layer: name.startswith("layers.1"))
    assert [type(each.linear1) for each in sparse.layers] == [Linear, SparseLinear]
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    with mode():
        expected = dense(x, src_key_padding_mask=padding)[~padding]
        found = sparse(x, src_key_padding_mask=padding)[~padding]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        densify(sparse)
        assert sparse.use_nested_tensor is dense.use_nested_tensor is True
        torch.testing.assert_close(sparse(x, src_key_padding_mask=padding)[~padding], expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_attention_of_pytorch_reads_the_weight_of_a_sparse_projection(mode, training, need_weights, format):
    """It never calls ``out_proj``, but reads its weight and bias, also in its fused form."""
    dense = zeroed(MultiheadAttention(16, 2, batch_first=True), 0.3).train(training)
    sparse = copy.deepcopy(dense)
    sparse.out_proj = SparseLinear.from_dense(dense.out_proj, format=format).train(training)
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    with mode():
        found, expected = (each(x, x, x, need_weights=need_weights)[0] for each in (sparse, dense))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if mode is torch.enable_grad:
        for output in (found, expected):
            output.square().sum().backward()
        kept = dense.out_proj.weight != 0
        gradient = sparse.out_proj.values.grad
        matrix = sparse.out_proj._matrix
        gradient = gradient[kept] if matrix is None else matrix.unpack(gradient)
        torch.testing.assert_close(gradient, dense.out_proj.weight.grad[kept], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(sparse.in_proj_weight.grad, dense.in_proj_weight.grad, rtol=1e-4, atol=1e-5)
