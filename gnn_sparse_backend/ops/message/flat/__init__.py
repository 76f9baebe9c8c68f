"""Operators over a few listed edges, with all that a call looks up found beforehand.

=============  ====================================================================================
module         what it holds
=============  ====================================================================================
``operators``  aggregations and edge maps, and what all such operators have in common (`Flat`)
``extreme``    maxima and minima whose gradient goes to the edge that was chosen
``prepared``   what ``precompile`` makes of them
=============  ====================================================================================
"""

from .extreme import FlatExtreme
from .operators import FLOATS, Flat, FlatAggregate, FlatMap
from .prepared import few_of_reduction

__all__ = ["FLOATS", "Flat", "FlatAggregate", "FlatExtreme", "FlatMap", "few_of_reduction"]
