"""A DGL whose GraphBolt does not load, imported with a stand-in: a package of a few files in DGL's place."""

import subprocess
import sys

import pytest

FILES = {
    "__init__.py": "from ._ffi.base import DGLError\nfrom . import _api_internal, nodes, graphbolt, edges\n",
    "_ffi/__init__.py": "",
    "_ffi/base.py": "class DGLError(Exception):\n    pass\n",
    "_api_internal.py": "",
    "nodes.py": "class Node:\n    pass\n",
    "edges.py": "from .nodes import Node\nfrom . import graphbolt\nclass Loader(graphbolt.ItemSampler):\n    pass\n",
    "graphbolt/__init__.py": "raise ImportError('cannot load the library of GraphBolt')\n",
}


@pytest.fixture
def run(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "dgl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(program: str) -> str:
        before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        before += "from gnn_sparse_backend.integrations.core.substitutes.stand_ins import import_dgl\n"
        found = subprocess.run([sys.executable, "-c", before + program], capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout

    return run


@pytest.mark.slow
def test_all_but_graphbolt_is_there_and_its_use_says_why(run):
    shown = run(
        "import_dgl(); import dgl\n"
        "assert dgl.edges.Node is dgl.nodes.Node and dgl.graphbolt is sys.modules['dgl.graphbolt']\n"
        "try:\n    dgl.graphbolt.ItemSampler()\nexcept ImportError as error:\n    print(error)\n"
    )
    assert "dgl.graphbolt.ItemSampler cannot be used here" in shown
    assert "cannot load the library of GraphBolt" in shown


@pytest.mark.slow
def test_errors_that_c_raises_stay_those_of_dgl(run):
    """What C knows is the class of the first attempt, also of one that was the user's."""
    run(
        "try:\n    import dgl\nexcept ImportError:\n    pass\n"
        "known_to_c = sys.modules['dgl._ffi.base'].DGLError\n"
        "import_dgl(); import dgl\n"
        "assert dgl.DGLError is known_to_c is dgl._ffi.base.DGLError and dgl._api_internal\n"
    )
