"""Transformers of Hugging Face (5): ``attn_implementation="gsb"`` of every model that asks ``AttentionInterface``.

=============  =====================================================================================
module         what it holds
=============  =====================================================================================
``attention``  the attention of a layer: windows, padding, soft caps, biases, sinks, shared keys
``masks``      the masks that models describe by functions, and dense ones
=============  =====================================================================================

Counted as ``attention``. What is not ours is ``sdpa``'s, with the mask that it takes. Once disabled, a model is to be
given another implementation (``model.set_attn_implementation("sdpa")``).
"""

from __future__ import annotations

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ...dynamo import not_traced
from ..core.refusal import Boundary
from . import attention, masks

NAME = "gsb"


class TransformersHost(Boundary):
    name = "transformers"
    traced = False


HOST = TransformersHost()


def activate() -> None:
    """Register ours by its name; called by ``enable("transformers")``."""
    ours = HOST.admit(attention.by_pytorch(sdpa_attention_forward), "attention", attention.run)
    AttentionInterface.register(NAME, ours)
    AttentionMaskInterface.register(NAME, not_traced(masks.mask))


def deactivate() -> None:
    """Take the name away."""
    for interface in (AttentionInterface, AttentionMaskInterface):
        interface._global_mapping.pop(NAME, None)
