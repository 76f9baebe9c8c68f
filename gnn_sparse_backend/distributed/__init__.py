"""Training on a graph whose rows are shared out among processes: ``gsb.distributed``.

gsb.distributed.partition(graph, 2, "parts", features=x, labels=y)  # once
graph = gsb.distributed.DistGraph.load("parts")  # in each process
y = gsb.spmm(graph, graph.features())
"""

from .dropout import Dropout as Dropout
from .graph import DistGraph as DistGraph
from .halo import halo_exchange as halo_exchange
from .loss import mean_loss as mean_loss
from .partition import partition as partition
from .wrap import wrap as wrap
