"""``nn.SparseAttention`` against ``torch.nn.MultiheadAttention`` with the same mask, and in its place."""

from __future__ import annotations

import copy
import itertools
import pickle
from functools import partial

import pytest
import torch
from torch.nn import MultiheadAttention

from gnn_sparse_backend import nn
from gnn_sparse_backend.structures import masks

WIDE, HEADS = 24, 3
# blocks, types and heads are those of tests/ops/masked, and with them the kernels
BLOCK = 16
window = partial(masks.band, left=3, right=2, block=BLOCK)
pytestmark = pytest.mark.usefixtures("one_thread")


def dense_of(batch_first=True, **given) -> MultiheadAttention:
    torch.manual_seed(0)
    layer = MultiheadAttention(WIDE, HEADS, batch_first=batch_first, dtype=torch.float64, **given)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def drawn(*shape) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def assert_same(dense, sparse, mask, operands, key_padding_mask=None) -> None:
    """Values, and gradients of operands and parameters, with a random cotangent."""
    leaves = [*dict.fromkeys(operands), *dense.parameters()]
    heads = mask.to_dense().repeat(1 if mask.heads > 1 else HEADS, 1, 1)
    batch = 1 if operands[0].dim() == 2 else operands[0].shape[0 if dense.batch_first else 1]
    forbidden = ~heads.repeat(batch, 1, 1)
    wanted, _ = dense(*operands, key_padding_mask=key_padding_mask, need_weights=False, attn_mask=forbidden)
    found, weights = sparse(*operands, key_padding_mask)
    assert weights is None and not wanted.isnan().any()
    torch.testing.assert_close(found, wanted)
    cotangent = torch.randn_like(wanted)
    for a, b in zip(torch.autograd.grad(found, leaves, cotangent), torch.autograd.grad(wanted, leaves, cotangent)):
        torch.testing.assert_close(a, b)


PADDINGS = [(True, True, None), (False, True, "bool"), (True, False, "floating")]
EVERY = itertools.product([True, False], [True, False], [None, "bool", "floating"])


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("bias", "batch_first", "padding"),
    [*PADDINGS, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in EVERY if case not in PADDINGS)],
)
def test_self_attention(bias, batch_first, padding):
    dense, mask = dense_of(batch_first, bias=bias), window(20)
    sparse = nn.SparseAttention.from_dense(dense, mask)
    x = drawn(2, 20, WIDE) if batch_first else drawn(20, 2, WIDE)
    absent = torch.zeros(2, 20, dtype=torch.bool)
    absent[1, 5:8] = True
    given = {"bool": absent, "floating": torch.zeros(2, 20).double().masked_fill(absent, -torch.inf)}.get(padding)
    assert_same(dense, sparse, mask, (x, x, x), given)


@pytest.mark.parametrize("widths", [{}, {"kdim": 10, "vdim": 14}])
@pytest.mark.parametrize("batched", [True, False])
def test_cross_attention(widths, batched):
    dense, mask = dense_of(**widths), masks.band((9, 30), 2, 40, block=BLOCK)
    sparse = nn.SparseAttention.from_dense(dense, mask)
    batch = (2,) if batched else ()
    operands = [drawn(*batch, n, w) for n, w in ((9, WIDE), (30, dense.kdim), (30, dense.vdim))]
    assert_same(dense, sparse, mask, operands)


def test_a_mask_for_each_head():
    dense, mask = dense_of(), masks.heads([window(20), masks.causal(20), masks.butterfly(20, 4)])
    x = drawn(2, 20, WIDE)
    assert_same(dense, nn.SparseAttention.from_dense(dense, mask), mask, (x, x, x))


def test_gradients_of_both_orders():
    layer = nn.SparseAttention.from_dense(dense_of(), masks.band((5, 9), 2, 3, block=BLOCK))
    names = [name for name, _ in layer.named_parameters()]

    def run(query, key, value, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (query, key, value))[0]

    operands = *(drawn(1, n, WIDE) for n in (5, 9, 9)), *(x.detach().requires_grad_() for x in layer.parameters())
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(run, operands, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_what_the_dense_layer_does(dtype):
    mask, results = window(20), []
    for kind in (lambda x: nn.SparseAttention.from_dense(x, mask), lambda x: x):
        layer = kind(dense_of().float())
        given = {} if isinstance(layer, nn.SparseAttention) else {"attn_mask": ~mask.to_dense()[0]}
        torch.manual_seed(1)
        x = torch.randn(2, 20, WIDE, requires_grad=True)
        with torch.autocast("cpu", dtype):
            y, _ = layer(x, x, x, need_weights=False, **given)
        y.float().square().sum().backward()
        results.append((y, x.grad, layer.out_proj.weight.grad))
    for found, expected in zip(*results):
        assert found.dtype is expected.dtype
        torch.testing.assert_close(
            found.float(), expected.float(), rtol=5e-2, atol=5e-2 * float(expected.detach().abs().max())
        )


def test_compiled_whole():
    layer = nn.SparseAttention.from_dense(dense_of(), window(20))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for each in (compiled, layer):
        torch.manual_seed(1)
        x = drawn(2, 20, WIDE)
        y, _ = each(x, x, x)
        results.append((y, *torch.autograd.grad(y.square().sum(), (x, *layer.parameters()))))
    for found, expected in zip(*results):
        torch.testing.assert_close(found, expected)


def test_masks_of_any_length():
    dense = dense_of()
    sparse = nn.SparseAttention.from_dense(dense, window)
    for n in (7, 20, 7):
        x = drawn(2, n, WIDE)
        assert_same(dense, sparse, window(n), (x, x, x))
    assert sparse._mask_of(7, 7) is sparse._mask_of(7, 7)
    again = pickle.loads(pickle.dumps(copy.deepcopy(sparse)))
    torch.testing.assert_close(again(x, x, x)[0], sparse(x, x, x)[0])


def test_queries_without_keys_get_the_bias():
    nothing = masks.from_dense(torch.zeros(4, 4, dtype=torch.bool), block=BLOCK)
    layer = nn.SparseAttention(WIDE, HEADS, mask=nothing, batch_first=True)
    x = torch.randn(1, 4, WIDE)
    assert torch.equal(layer(x, x, x)[0], layer.out_proj.bias.expand(1, 4, -1))


def test_parameters_are_those_of_pytorch():
    dense = dense_of(kdim=10)
    sparse = nn.SparseAttention.from_dense(dense, window)
    assert {name: id(x) for name, x in sparse.named_parameters()} == {n: id(x) for n, x in dense.named_parameters()}
    back = sparse.eval().to_dense()
    assert isinstance(back, MultiheadAttention) and not back.training
    assert {name: id(x) for name, x in back.named_parameters()} == {n: id(x) for n, x in dense.named_parameters()}
    for widths in ({}, {"kdim": 10}, {"bias": False}):
        torch.manual_seed(1)
        one = MultiheadAttention(WIDE, HEADS, **widths)
        torch.manual_seed(1)
        other = nn.SparseAttention(WIDE, HEADS, mask=window, **widths)
        assert list(one.state_dict()) == list(other.state_dict())
        assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))  # also how they begin
        other.load_state_dict(MultiheadAttention(WIDE, HEADS, **widths).state_dict())


def encoder(layer, **given):
    return torch.nn.TransformerEncoder(layer, 2, **given)


@pytest.mark.parametrize("training", [True, False])
def test_within_an_encoder_of_pytorch(training):
    """Its layers have a fast path that would attend every pair."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDE, HEADS, 48, 0.0, batch_first=True, dtype=torch.float64)
    mask = window(20)
    wanted = encoder(layer, enable_nested_tensor=False)
    found = copy.deepcopy(wanted)
    for each in found.layers:
        each.self_attn = nn.SparseAttention.from_dense(each.self_attn, mask)
    x, absent = drawn(2, 20, WIDE), torch.arange(20) >= torch.tensor([[20], [18]])
    with torch.set_grad_enabled(training):
        expected = wanted.train(training)(x, ~mask.to_dense()[0], absent)
        torch.testing.assert_close(found.train(training)(x, src_key_padding_mask=absent)[:, :18], expected[:, :18])


def test_dropout_only_in_training():
    layer = nn.SparseAttention(WIDE, HEADS, 0.5, mask=window, batch_first=True).double()
    x = drawn(2, 20, WIDE)
    assert not torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    layer.eval()
    assert torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])


X = torch.zeros(2, 20, WIDE)
WRONG = [
    (lambda a: a(X, X, X, need_weights=True), ValueError, "need_weights=True: attention in one pass has no weights"),
    (lambda a: a(X, X, X, attn_mask=torch.zeros(20, 20)), ValueError, "attn_mask of (20, 20)"),
    (lambda a: a(X, X, X, is_causal=True), ValueError, "is_causal=True"),
    (lambda a: a(X, X[0], X), ValueError, "got (2, 20, 24), (20, 24) and (2, 20, 24)"),
    (lambda a: a(X, X, X, torch.zeros(2, 19).bool()), ValueError, "(batch, keys) = (2, 20), got (2, 19)"),
    (lambda a: a(X, X, X, torch.zeros(2, 20).long()), TypeError, "bool or floating, got torch.int64"),
    (lambda a: a(X, X, X, torch.full((2, 20), -3.0)), ValueError, "0 or minus infinity where it is floating, got -3.0"),
    (lambda a: a(*[torch.nested.nested_tensor([X[0], X[1]])] * 3), TypeError, "enable_nested_tensor=False"),
    (lambda a: nn.SparseAttention(WIDE, 5, mask=window), ValueError, "embed_dim 24 and num_heads 5"),
    (lambda a: nn.SparseAttention(WIDE, 3, 1.5, mask=window), ValueError, "dropout must be in [0, 1), got 1.5"),
    (lambda a: nn.SparseAttention(WIDE, 3, mask=X), TypeError, "a function of (queries, keys), got Tensor"),
    (lambda a: nn.SparseAttention(WIDE, 3, mask=masks.heads([window(9)] * 2)), ValueError, "1 or num_heads=3 heads"),
    (lambda a: nn.SparseAttention(WIDE, 3, mask=lambda n: 3, batch_first=True)(X, X, X), TypeError, "a Mask, got int"),
    (lambda a: nn.SparseAttention(WIDE, 3, mask=lambda n: window(9))(X, X, X), ValueError, "(2, 2) queries and keys"),
    (lambda a: nn.SparseAttention.from_dense(torch.nn.Linear(2, 2), window), TypeError, "got Linear"),
    (lambda a: a.from_dense(MultiheadAttention(24, 3, add_bias_kv=True), window), ValueError, "add_bias_kv=True"),
    (lambda a: a.from_dense(MultiheadAttention(24, 3, add_zero_attn=True), window), ValueError, "add_zero_attn=True"),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG, ids=range(len(WRONG)))
def test_what_it_cannot_do_is_refused(call, kind, words):
    with pytest.raises(kind) as told:
        call(nn.SparseAttention(WIDE, HEADS, mask=window, batch_first=True))
    assert words in str(told.value)
