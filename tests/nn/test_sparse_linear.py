"""Sparse linear layers against the dense ones that they were made from."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import Linear
from torch.nn.utils import prune

import gnn_sparse_backend as gsb
from gnn_sparse_backend.nn import SparseLinear
from gnn_sparse_backend.nn.weight_format import TOKENS, weight_format
from gnn_sparse_backend.planner.composed import ComposedPlan, problem_of
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.structures.facts import content_hash

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def pruned(in_features=7, out_features=5, density=0.3, bias=True, dtype=torch.float64, seed=0) -> Linear:
    """With a row and a column without any weight."""
    gen = torch.Generator().manual_seed(seed)
    linear = Linear(in_features, out_features, bias=bias, dtype=dtype)
    with torch.no_grad():
        kept = torch.rand(out_features, in_features, generator=gen) < density
        kept[0], kept[:, -1] = False, False
        linear.weight.copy_(torch.randn(out_features, in_features, generator=gen) * kept)
        if bias:
            linear.bias.copy_(torch.randn(out_features, generator=gen))
    return linear


def drawn(*shape, dtype=torch.float64, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("format", ["csr", "dense", "bsr(8)", "dbsr(2) + csr"])
@pytest.mark.parametrize("lead", [(), (1,), (9,), (2, 3), (0,), (2, 0, 3)])
def test_values_and_gradients_are_those_of_the_dense_layer(dtype, bias, format, lead):
    dense = pruned(bias=bias, dtype=dtype)
    sparse = SparseLinear.from_dense(dense, format=format)
    x, results = drawn(*lead, 7, dtype=dtype), []
    for layer in (dense, sparse):
        given = x.clone().requires_grad_()
        y = layer(given)
        y.backward(drawn(*lead, 5, dtype=dtype, seed=2))
        results.append((y.detach(), given.grad, None if layer.bias is None else layer.bias.grad))
    for ours, theirs in zip(results[1], results[0]):
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])
    kept = dense.weight != 0
    found, expected = sparse.values.grad, dense.weight.grad * kept
    if format != "dense":
        expected = expected[kept]
    if "bsr" in format:
        assert not found[~sparse._matrix.mask].any()
        found = sparse._matrix.unpack(found)
    torch.testing.assert_close(found, expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 20),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from(["csr", "bsr(8)"]),
)
def test_any_shape(in_features, out_features, rows, density, bias, format):
    dense = pruned(in_features, out_features, density, bias)
    x = drawn(rows, 2 * in_features)[:, ::2]
    torch.testing.assert_close(SparseLinear.from_dense(dense, format=format)(x), dense(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("format", ["csr", "dense", "bsr(2)"])
def test_gradients_of_any_order(format):
    sparse = SparseLinear.from_dense(pruned(), format=format)
    x = drawn(3, 7).requires_grad_()

    def run(x, values, bias):
        return torch.func.functional_call(sparse, {"values": values, "bias": bias}, (x,))

    operands = x, sparse.values.detach().requires_grad_(), sparse.bias.detach().requires_grad_()
    if format == "bsr(2)":  # what pads has no gradient, whatever its difference quotient is

        def of_kept(x, kept, bias):
            return run(x, sparse._matrix.pack(kept), bias)

        kept = sparse._matrix.unpack(operands[1].detach()).requires_grad_()
        operands = operands[0], kept, operands[2]
        assert torch.autograd.gradcheck(of_kept, operands) and torch.autograd.gradgradcheck(
            of_kept, operands, fast_mode=True
        )
    elif format == "csr":
        assert torch.autograd.gradcheck(run, operands) and torch.autograd.gradgradcheck(run, operands, fast_mode=True)
    else:  # a pruned element has no gradient, whatever its difference quotient is
        kept = sparse.values.detach() != 0

        def of_kept(x, some, bias):
            return run(x, torch.zeros_like(sparse.values).masked_scatter(kept, some), bias)

        operands = operands[0], sparse.values.detach()[kept].requires_grad_(), operands[2]
        assert torch.autograd.gradcheck(of_kept, operands) and torch.autograd.gradgradcheck(
            of_kept, operands, fast_mode=True
        )


@pytest.mark.parametrize("format", ["csr", "bsr(2)"])
def test_not_finite_inputs_meet_their_weights_alone(format):
    dense = pruned()
    for value in (torch.inf, torch.nan):
        x = drawn(4, 7)
        x[1, 2] = value
        y = SparseLinear.from_dense(dense, format=format)(x)
        meets = dense.weight[:, 2] != 0
        assert torch.equal(y[1].isfinite(), ~meets) and y[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("format", ["auto", "bsr(2)"])
def test_state_dicts_go_both_ways(format):
    dense, sparse = pruned(seed=3), SparseLinear.from_dense(pruned(seed=3), format=format)
    with torch.no_grad():
        sparse.values.mul_(2.0)
    state = sparse.state_dict()
    assert list(state) == ["bias", "weight"] and all(x.is_contiguous() for x in state.values())
    dense.load_state_dict(state)
    assert torch.equal(dense.weight, sparse.weight)
    other = SparseLinear.from_dense(pruned(seed=3), format="csr")
    other.load_state_dict(state)
    assert torch.equal(other.weight, sparse.weight)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert other.load_state_dict({"bias": state["bias"]}, strict=False).missing_keys == ["weight"]
    with pytest.raises(RuntimeError, match="weight"):
        other.load_state_dict({"bias": state["bias"]})


def test_a_state_that_would_lose_weights_is_refused():
    sparse, full = SparseLinear.from_dense(pruned()), Linear(7, 5, dtype=torch.float64)
    lost = int((full.weight != 0).sum()) - sparse.nnz
    with pytest.raises(RuntimeError, match=f"{lost} of its non-zeros are where this layer keeps none"):
        sparse.load_state_dict(full.state_dict())
    with pytest.raises(RuntimeError, match=r"must be \(5, 7\), got \(7, 7\)"):
        sparse.load_state_dict(Linear(7, 7, dtype=torch.float64).state_dict())


def test_pruned_by_pytorch():
    linear = Linear(12, 9)
    prune.l1_unstructured(linear, "weight", amount=0.8)
    sparse = SparseLinear.from_dense(linear)
    assert sparse.nnz == int(linear.weight_mask.sum()) and sparse.values.requires_grad
    x = drawn(4, 12, dtype=torch.float32)
    torch.testing.assert_close(sparse(x), linear(x))


def test_a_mask_says_what_is_kept():
    linear = Linear(6, 4)
    with torch.no_grad():
        linear.weight[0, 0] = 0.0
    mask = torch.zeros(4, 6, dtype=torch.bool)
    mask[0, :3] = True
    sparse = SparseLinear.from_dense(linear, mask)
    assert sparse.nnz == 3 and torch.equal(sparse.weight, linear.weight * mask)


@pytest.mark.parametrize("format", ["csr", "bsr(2)"])
def test_copies_and_types(format):
    sparse = SparseLinear.from_dense(pruned(), format=format)
    x = drawn(3, 7)
    for other in (copy.deepcopy(sparse), pickle.loads(pickle.dumps(sparse))):
        assert torch.equal(other(x), sparse(x))
    torch.testing.assert_close(copy.deepcopy(sparse).float()(x.float()), sparse(x).float(), rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="x is torch.float32, and the weights are torch.float64"):
        sparse(x.float())


@pytest.mark.parametrize("format", ["csr", "dense", "bsr(2)"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_types_of_a_dense_layer(format, dtype):
    dense, results = pruned(dtype=torch.float32), []
    sparse = SparseLinear.from_dense(dense, format=format)
    for layer in (sparse, dense):
        x = drawn(3, 7, dtype=torch.float32).requires_grad_()
        with torch.autocast("cpu", dtype):
            y = layer(x)
        y.float().square().sum().backward()
        results.append((y, x.grad, layer.bias.grad))
    for found, expected in zip(*results):
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found.float(), expected.float(), rtol=3e-2, atol=3e-2)
    assert results[0][0].dtype is dtype and sparse.values.grad.dtype is torch.float32


@pytest.mark.parametrize("format", ["csr", "dense", "bsr(2)"])
def test_compiled_whole(format):
    sparse, x = SparseLinear.from_dense(pruned(), format=format), drawn(2, 3, 7)
    compiled = torch.compile(sparse, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), sparse(x))
    for layer in (compiled, sparse):
        sparse.zero_grad()
        layer(x).square().sum().backward()
        sparse.values.saved = [*getattr(sparse.values, "saved", []), sparse.values.grad.clone()]
    torch.testing.assert_close(*sparse.values.saved)


def test_training_leaves_pruned_weights_zero():
    for format in ("csr", "dense", "bsr(2)"):
        dense = pruned(dtype=torch.float32)
        sparse = SparseLinear.from_dense(dense, format=format)
        optimizer = torch.optim.AdamW(sparse.parameters(), 0.1)
        for seed in range(3):
            optimizer.zero_grad()
            sparse(drawn(8, 7, dtype=torch.float32, seed=seed)).square().sum().backward()
            optimizer.step()
        found = sparse.to_dense()
        if format == "bsr(2)":
            assert not sparse.values[~sparse._matrix.mask].any() and sparse._matrix.padding
        assert torch.equal(found.weight != 0, dense.weight != 0) and not torch.equal(found.weight, dense.weight)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: SparseLinear.from_dense(torch.nn.ReLU()), TypeError, "got ReLU"),
        (lambda: SparseLinear.from_dense(Linear(3, 2), torch.ones(3, 2)), ValueError, r"\(2, 3\), got \(3, 2\)"),
        (lambda: SparseLinear.from_dense(Linear(3, 2), format="bsr"), ValueError, "got 'bsr'"),
        (lambda: SparseLinear.from_dense(Linear(3, 2))(torch.ones(4, 2)), ValueError, r"\(..., 3\), got \(4, 2\)"),
        (
            lambda: SparseLinear.from_dense(Linear(3, 2))(torch.nested.nested_tensor([torch.ones(4, 3)])),
            TypeError,
            "got a nested one .*strided",
        ),
        (
            lambda: SparseLinear(torch.tensor([0, 2]), torch.tensor([1, 1]), 3),
            ValueError,
            "an element of the matrix is named twice",
        ),
    ],
)
def test_bad_input_is_quoted(make, error, words):
    with pytest.raises(error, match=words):
        make()


def in_blocks(side: int, share: float, shape=(256, 128)) -> Linear:
    linear = Linear(shape[1], shape[0])
    kept = torch.rand(shape[0] // side, shape[1] // side, generator=torch.Generator().manual_seed(0)) < share
    with torch.no_grad():
        linear.weight.mul_(kept.repeat_interleave(side, 0).repeat_interleave(side, 1))
    return linear


@pytest.mark.parametrize(
    "side, share, format",
    [(32, 0.1, "bsr(32)"), (16, 0.1, "bsr(16)"), (8, 0.1, "bsr(8)"), (1, 0.05, "csr"), (1, 0.9, "dense")],
)
def test_the_rule_decides_at_once(side, share, format):
    assert SparseLinear.from_dense(in_blocks(side, share)).format == format


def test_what_was_measured_of_this_structure_counts_before_the_rule(tmp_path):
    linear = in_blocks(32, 0.1)
    with database.using(PlanDatabase(tmp_path / "plans.json")):
        choice = gsb.tune_format(linear.weight, TOKENS, budget=0.001, tokens=True)
        seconds = {row.formats: row.measured for row in choice.rows if row.measured is not None}
        problem = problem_of(
            (256, 128), int((linear.weight != 0).sum()), TOKENS, "float32", torch.get_num_threads(), True
        )
        parts = gsb.formats.decompose(linear.weight, "csr")
        key = content_hash(parts.indptr, parts.indices, None, parts.shape)
        assert database().find(problem, lambda: key) is not None
        told = {words: 1.0 + len(words) for words in seconds} | {"csr": 1.0, "dense": 3.0, "bsr(32)": 2.0}
        told |= {words: 9.0 for words in told if words not in ("csr", "dense", "bsr(32)")}
        database().add(problem, key, {ComposedPlan(words): taken for words, taken in told.items()})
        found = weight_format(gsb.Graph.from_csr(parts.indptr, parts.indices, parts.shape), torch.float32)
        assert (found.best, found.gain, found.measured) == ("csr", 3.0, True)
        assert SparseLinear.from_dense(linear).format == "csr"
    assert SparseLinear.from_dense(linear, format="dbsr( 16 )+csr").format == "dbsr(16) + csr"


WRITES = {
    "in place": lambda w: w.mul_(2),
    "an element": lambda w: w.__setitem__((0, 0), 1.0),
    "of a view": lambda w: w[1].fill_(3),
    "of a flat view": lambda w: w.view(-1).add_(1),
    "data": lambda w: w.data.zero_(),
    "data of a view": lambda w: w.t().data.zero_(),
    "detached": lambda w: w.detach().copy_(torch.ones(5, 7)),
    "initialised": torch.nn.init.xavier_uniform_,
    "uniform": lambda w: torch.nn.init.uniform_(w),
    "out": lambda w: torch.add(torch.ones(5, 7), 1, out=w),
    "augmented": lambda w: exec("w += 1", {"w": w}),
}


@pytest.mark.parametrize("format", ["csr", "dense", "bsr(2)"])
@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_written_to_a_weight_is_never_lost_without_a_word(how, format, grad):
    layer = SparseLinear.from_dense(pruned(), format=format)
    before = layer.weight.clone()
    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError, match="write to values, or give the whole matrix"):
        WRITES[how](layer.weight)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("format", ["csr", "dense", "bsr(2)"])
def test_a_weight_is_read_like_any_tensor(format):
    layer = SparseLinear.from_dense(pruned(), format=format)
    weight = layer.weight
    assert (
        type(weight + 1) is torch.Tensor and type(weight.sum()) is torch.Tensor and type(weight.clone()) is torch.Tensor
    )
    weight.square().sum().backward()
    assert torch.equal(layer.values.grad, 2 * layer.values.detach())
    with pytest.raises(ValueError, match="read-only"):
        weight.detach().numpy()[0, 0] = 1.0
    target = torch.zeros(5, 7, dtype=weight.dtype)
    target.copy_(weight.detach())
    assert torch.equal(target, weight.detach()) and type(pickle.loads(pickle.dumps(weight.detach()))) is torch.Tensor


@pytest.mark.parametrize("format", ["csr", "dense"])
def test_a_layer_that_is_pruned_is_not_pruned_again_in_place(format):
    layer = SparseLinear.from_dense(pruned(), format=format)
    for prunes in (prune.l1_unstructured, prune.random_unstructured):
        with pytest.raises(TypeError, match="prune layer.to_dense"):
            prunes(layer, "weight", amount=0.5)
    assert not [name for name, _ in layer.named_buffers() if "mask" in name]
