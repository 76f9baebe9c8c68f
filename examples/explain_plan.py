"""Ask which plan an operator runs by on a graph, what else there was and why, and draw the answer.
The graph has the size of Cora, where one thread may be as fast as two; the picture shows degrees and candidates.

    python examples/explain_plan.py [out/plan.png]
"""

import sys

import numpy as np
import scipy.sparse

import gnn_sparse_backend as gsb

NODES, EDGES, FEATURES = 2_700, 10_000, 16


def skewed_graph():
    """A SciPy matrix [destination, source]; a few rows have most of the non-zeros."""
    rng = np.random.default_rng(0)
    destination = (NODES * rng.random(EDGES) ** 3).astype(np.int64)
    source = rng.integers(0, NODES, EDGES)
    return scipy.sparse.csr_matrix((np.ones(EDGES, np.float32), (destination, source)), shape=(NODES, NODES))


def main():
    graph = gsb.Graph.from_scipy(skewed_graph())
    explanation = gsb.explain(graph, "mean", FEATURES)  # compiles nothing and measures nothing
    print(explanation)
    path = explanation.plot(sys.argv[1] if len(sys.argv) > 1 else "out/plan.png")
    print(f"written: {path}")

    for plan, predicted, measured in explanation.candidates():  # in seconds; measured by gsb.precompile or gsb tune
        assert predicted > 0 or measured > 0, plan
    assert explanation.plan in [plan for plan, _, _ in explanation.candidates()]
    assert path.stat().st_size > 10_000


if __name__ == "__main__":
    main()
