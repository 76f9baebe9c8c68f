"""Faces: a package of three files is given for a public name, and taken away again."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pickle
import subprocess
import sys

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core import registry
from gnn_sparse_backend.integrations.core.substitutes import faces

FILES = {
    "__init__.py": """
from . import layers, utils
from .layers import Linear, Plain

__version__ = "3.2.1"
MODULES = {"PublicLayers": "layers", "Linear": "layers", "ShoeTools": "", "ShoeTools.layers": "layers"}
""",
    "layers.py": "class Linear:\n    pass\n\n\nclass Plain:\n    pass\n",
    "utils/__init__.py": "from .inner import answer\n",
    "utils/inner.py": "class Inner:\n    pass\n\n\ndef answer():\n    return 42\n",
}


@pytest.fixture
def face(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / "ours_of_shoe" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(faces.FACES, "Shoe", faces.Face("ours_of_shoe", beside="Shoe"))
    yield tmp_path
    gsb.disable("Shoe")
    for name in [each for each in sys.modules if each.startswith("ours_of_shoe")]:
        del sys.modules[name]


def test_a_face_is_given_and_taken_away(face):
    assert importlib.util.find_spec("Shoe") is None and "Shoe" in registry.known_frameworks()
    with gsb.enabled("Shoe"):
        assert importlib.util.find_spec("Shoe").submodule_search_locations is not None
        assert gsb.status().enabled == ("Shoe",) and "ours_of_shoe" not in sys.modules
        shoe = importlib.import_module("Shoe")
        inner = importlib.import_module("Shoe.utils.inner")
        assert shoe.Linear is sys.modules["ours_of_shoe"].Linear and "Linear" in dir(shoe)
        assert shoe.utils.inner is inner and shoe.utils.answer is inner.answer and inner.__name__ == "Shoe.utils.inner"
        assert importlib.import_module("Shoe.PublicLayers").Plain is shoe.Plain
        assert (shoe.__version__, importlib.metadata.version("shoe")) == ("3.2.1", "3.2.1")
        with pytest.raises(AttributeError, match="'Shoe' has no attribute 'Sole'.*gnn_sparse_backend"):
            _ = shoe.Sole
        for missing in ("Shoe.sole", "Shoe.utils.sole.heel"):
            with pytest.raises(ModuleNotFoundError, match="sole"):
                importlib.import_module(missing)
    assert not [each for each in sys.modules if each.partition(".")[0] == "Shoe"]
    assert faces._finder not in sys.meta_path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("Shoe")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("Shoe")
    assert type(shoe.Linear()).__name__ == "Linear" and inner.answer() == 42  # what was imported works


def test_a_submodule_does_not_hide_a_class_of_its_name(face):
    with gsb.enabled("Shoe"):
        assert importlib.import_module("Shoe.Linear").Linear is importlib.import_module("Shoe").Linear


def test_modules_beside_a_package(face):
    with gsb.enabled("Shoe"):
        tools = importlib.import_module("ShoeTools.layers")
        assert tools.Linear is importlib.import_module("ShoeTools").Linear is importlib.import_module("Shoe").Linear
        with pytest.raises(ModuleNotFoundError, match="ShoeLace"):
            importlib.import_module("ShoeLace")
    assert not [each for each in sys.modules if each.startswith("Shoe")]


def test_pickles_name_the_public_module_while_it_is_enabled(face):
    with gsb.enabled("Shoe"):
        shoe = importlib.import_module("Shoe")
        pickled = pickle.dumps(shoe.Plain())
        assert b"Shoe" in pickled and b"ours_of_shoe" not in pickled
        assert type(pickle.loads(pickled)) is shoe.Plain
        assert importlib.import_module("Shoe.utils.inner").Inner.__module__ == "Shoe.utils.inner"
    assert shoe.Plain.__module__ == "ours_of_shoe.layers"
    assert type(pickle.loads(pickle.dumps(shoe.Plain()))) is shoe.Plain
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(pickled)
    with gsb.enabled("Shoe"):
        assert type(pickle.loads(pickled)) is shoe.Plain


def test_a_library_that_is_installed_gives_way_unless_it_is_imported(face):
    (face / "Shoe.py").write_text("theirs = True\n")
    importlib.invalidate_caches()
    with gsb.enabled("Shoe"):
        assert not hasattr(importlib.import_module("Shoe"), "theirs")
    assert importlib.import_module("Shoe").theirs
    try:
        with pytest.raises(ImportError, match="'Shoe'.*before the first import"):
            gsb.enable("Shoe")
        assert gsb.status().enabled == () and sys.modules["Shoe"].theirs
    finally:
        del sys.modules["Shoe"]


def test_several_are_enabled_at_once_or_none(face, monkeypatch):
    registry.register("made_up", lambda: None, lambda: None)
    try:
        gsb.enable("made_up", "Shoe")
        assert gsb.status().enabled == ("made_up", "Shoe")
        gsb.disable()
        monkeypatch.setitem(sys.modules, "Shoe", sys)
        with pytest.raises(ImportError, match="Shoe"):
            gsb.enable("made_up", "Shoe")
        assert gsb.status().enabled == ()
        monkeypatch.delitem(sys.modules, "Shoe")
        for names, told in ((("Shoe", "sheo"), "'sheo'"), ((), "needs the name")):
            with pytest.raises(ValueError, match=told):
                gsb.enable(*names)
            assert gsb.status().enabled == ()
        with pytest.raises(ValueError, match="'Shoe'.*part of this package"):
            registry.register("Shoe", lambda: None, lambda: None)
    finally:
        monkeypatch.delitem(registry._registered, "made_up")


@pytest.mark.slow
def test_a_process_that_is_spawned_has_the_face(face):
    program = f"""
import sys; sys.path.insert(0, {str(face)!r})
import multiprocessing
import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.substitutes import faces
faces.FACES["torchsparse"] = faces.Face("ours_of_shoe")

if __name__ == "__main__":
    gsb.enable("torchsparse")
    import torchsparse
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(type(pool.apply(torchsparse.Plain)).__module__)
"""
    (face / "program.py").write_text(program)
    found = subprocess.run([sys.executable, face / "program.py"], capture_output=True, text=True)
    assert found.stdout == "torchsparse\n", found.stderr
