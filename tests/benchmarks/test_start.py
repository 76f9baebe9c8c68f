"""The benchmark of starting measures each step of fresh processes, and shows what it measured."""

import json

import pytest

from benchmarks import start


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    assert start.main(["--quick", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "start.json").read_text())["rows"]
    assert [row["step"] for row in rows] == ["import", "first spmm"]
    assert all(row["seconds"] > 0 for row in rows)
    assert "first spmm" in capsys.readouterr().out
