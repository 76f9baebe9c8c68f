"""Reduce functions of users over the messages of each node, without the padding by degree.

DGL sorts nodes by degree, and calls the function for each degree with messages as (nodes, degree, ...). Here it is
called once for all::

    graph.update_all(fn.copy_u("h", "m"), lambda nodes: {"h": nodes.mailbox["m"].mean(1)})

=========  ====================================================================================
module     what it holds
=========  ====================================================================================
``rows``   what a function is given numbers as, and what it may do with them
``inbox``  the call
=========  ====================================================================================

A function that does anything else is called as DGL does, from the beginning.
"""

from .inbox import make_reduced

__all__ = ["make_reduced"]
