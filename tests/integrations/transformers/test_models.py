"""Models of transformers with ``attn_implementation="gsb"`` compute, and are trained, as with PyTorch's attention."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb

transformers = pytest.importorskip("transformers", minversion="5.0")

BATCH, LENGTH = 2, 80
SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SHARED = SMALL | {"num_key_value_heads": 2, "head_dim": 8}
WINDOW = 8


def mistral():
    return transformers.MistralConfig(**SHARED, sliding_window=WINDOW)


def gemma():
    return transformers.Gemma2Config(**SHARED, sliding_window=WINDOW, attn_logit_softcapping=2.0)


def modernbert():
    return transformers.ModernBertConfig(**SMALL, local_attention=2 * WINDOW, pad_token_id=0)


def gpt_oss():
    return transformers.GptOssConfig(**SHARED, sliding_window=WINDOW, num_local_experts=2, num_experts_per_tok=1)


def bert():
    return transformers.BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def padded():
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, 61:] = 0
    return mask


def longformer():
    """(1, 1, queries, keys): a window around each token, and one token that attends and is attended by all."""
    at = torch.arange(LENGTH)
    near = (at[:, None] - at).abs() <= WINDOW
    return (near | (at == 0) | (at[:, None] == 0))[None, None]


def step(config, implementation, tokens, mask):
    """(what the model computes of tokens that are there, gradients of its parameters)."""
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config, attn_implementation=implementation).train()
    out = model(input_ids=tokens, attention_mask=mask).last_hidden_state
    there = mask.bool() if mask is not None and mask.dim() == 2 else torch.ones(BATCH, LENGTH, dtype=torch.bool)
    found = out[there]
    (found * torch.linspace(-1, 1, found.numel()).view_as(found)).sum().backward()
    return found.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("made", "peers", "mask"),
    [
        (mistral, ("sdpa", "eager"), padded()),
        (gemma, ("eager",), padded()),
        (modernbert, ("sdpa", "eager"), padded()),
        (bert, ("sdpa",), longformer()),
        pytest.param(mistral, ("sdpa",), None, marks=pytest.mark.slow),
        pytest.param(gpt_oss, ("eager",), padded(), marks=pytest.mark.slow),
    ],
)
def test_a_training_step(made, peers, mask):
    tokens = torch.randint(1, 50, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
    with gsb.enabled("transformers"):
        found, gradients = step(made(), "gsb", tokens, mask)
        calls = gsb.status().to_dict()["calls"]["transformers"]["attention"]
    assert calls == {"ours": 2, "fallbacks": {}}
    for peer in peers:
        expected, wanted = step(made(), peer, tokens, mask)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert gradients.keys() == wanted.keys()
        for name, gradient in gradients.items():
            scale = max(1.0, wanted[name].abs().max().item())
            torch.testing.assert_close(gradient, wanted[name], rtol=1e-3, atol=1e-4 * scale, msg=name)


def test_tokens_one_by_one():
    """With a cache of keys a model continues a text as PyTorch's attention does."""
    tokens = torch.randint(1, 50, (1, 70), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(mistral(), attn_implementation="sdpa").eval()
    asked = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(tokens, **asked)
    with gsb.enabled("transformers"):
        model.set_attn_implementation("gsb")
        assert torch.equal(model.generate(tokens, **asked), expected)
        assert gsb.status().to_dict()["calls"]["transformers"]["attention"]["fallbacks"] == {}
        model.set_attn_implementation("sdpa")


def test_the_last_query_has_no_mask_where_it_sees_all():
    """Absent keys, a window that is too short, and functions that are not causal alone have one."""
    from gnn_sparse_backend.integrations.transformers.masks import mask

    present = torch.ones(2, 20, dtype=torch.bool)
    asked = {"q_length": 1, "kv_length": 20, "q_offset": 19, "allow_is_causal_skip": True}
    assert mask(2, **asked) is None and mask(2, **asked, attention_mask=present, local_size=21) is None
    present[1, :3] = False
    window = lambda b, h, q, k: q - k < 20
    for more, seen in (
        ({"attention_mask": present}, present[:, None, None]),
        ({"local_size": 20, "mask_function": window}, torch.ones(1, 1, 1, 20, dtype=torch.bool)),
        ({"allow_is_causal_skip": False}, torch.ones(1, 1, 1, 20, dtype=torch.bool)),
    ):
        found = mask(2, **asked | more)
        assert torch.equal(found.dense().expand(2, 1, 1, 20), seen.expand(2, 1, 1, 20))


def test_the_name_is_there_while_it_is_enabled():
    with gsb.enabled("transformers"):
        assert "gsb" in transformers.AttentionInterface().valid_keys()
    assert "gsb" not in transformers.AttentionInterface().valid_keys()
    with pytest.raises(ValueError, match="gsb"):
        transformers.AutoModel.from_config(mistral(), attn_implementation="gsb")


def test_numbers_that_are_added_to_scores():
    """A float mask hides pairs, and biases the others."""
    from gnn_sparse_backend.integrations.transformers.masks import of_tensor

    given = torch.zeros(1, 1, 3, 3)
    given[..., 2] = torch.finfo(torch.float32).min
    mask, added = of_tensor(given)
    assert added is None and mask.dense()[0, 0].tolist() == [[True, True, False]] * 3
    given[..., 0] = 0.5
    mask, added = of_tensor(given)
    assert added is given and mask.dense()[0, 0].tolist() == [[True, True, False]] * 3
