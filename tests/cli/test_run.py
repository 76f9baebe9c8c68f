"""``gsb run``: an unchanged script with frameworks enabled."""

import sys

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend import cli

SCRIPT = """
import sys
import torch
from torch_scatter import scatter_sum

assert __name__ == "__main__"
print(scatter_sum(torch.ones(3), torch.tensor([0, 1, 1])).tolist(), *sys.argv[1:])
sys.exit(3)
"""


@pytest.fixture(autouse=True)
def switched_off(monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    gsb.disable()


@pytest.mark.parametrize("module", (False, True))
def test_a_script_runs_with_frameworks(module, tmp_path, capsys, monkeypatch):
    (tmp_path / "program.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    given = ["-m", "program"] if module else [str(tmp_path / "program.py")]
    assert cli.main(["run", "--enable", "torch_scatter", *given, "--epochs", "5"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("[1.0, 2.0] --epochs 5\nenabled: torch_scatter\n") and "scatter_sum" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    (
        ([], "give a script"),
        (["nowhere.py"], "no script nowhere.py"),
        (["--enable", "torch_skatter", __file__], "torch_scatter"),
    ),
)
def test_what_cannot_run_is_told(arguments, told, capsys):
    assert cli.main(["run", *arguments]) == 2
    assert told in capsys.readouterr().err
