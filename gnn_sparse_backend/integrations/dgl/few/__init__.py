"""Methods of ``DGLGraph`` on a graph of a few edges, from its features straight to a kernel.

DGL makes views of all features, finds an operator by its name and checks what it gave; on a batch of molecules that
takes longer than the kernel.

===========  ==============================================================
module       what it holds
===========  ==============================================================
``steps``    ``update_all`` and ``apply_edges`` with functions of DGL
``degrees``  ``in_degrees`` and ``out_degrees`` of all nodes
``columns``  what ``ndata`` and ``edata`` are set to, of graphs of any size
===========  ==============================================================
"""

from .columns import make_store
from .degrees import make_degrees
from .steps import make_apply, make_update

__all__ = ["make_apply", "make_degrees", "make_store", "make_update"]
