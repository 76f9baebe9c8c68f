"""Where tensors may be lazy: the call of a layer, or a block of a user's program; and what is known of such a place.

==============  ====================================================================================
module          what it holds
==============  ====================================================================================
``scope``       `Scope`: at whose end what is lazy and still held is computed
``copies``      copies of what somebody may write to, and whether they hold the same
``layers``      which calls of layers are known to hand out nothing of what they have in between, and what else is
                known of programs that have run before
``frames``      what the frames of a running program tell: who still reads a variable, hooks of modules
``modes``       the state of PyTorch that an operation runs in: gradients, transforms, checkpoints
``torch_state`` how PyTorch is asked for that, by version
==============  ====================================================================================

Nothing in here knows what a lazy tensor is made of.
"""

from .copies import copied, copy_among
from .frames import has_hooks, is_forgotten
from .layers import kind_of
from .modes import transformed
from .scope import Scope, current, lasting, note_shared, shares_sums

__all__ = [
    "Scope",
    "copied",
    "copy_among",
    "current",
    "has_hooks",
    "is_forgotten",
    "kind_of",
    "lasting",
    "note_shared",
    "shares_sums",
    "transformed",
]
