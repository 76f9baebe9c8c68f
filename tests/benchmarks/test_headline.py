"""The README's table and chart, and the headline table of the results, have the numbers of the pages of results."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import headline

MACHINES = headline.MACHINES


def test_table_and_chart_are_those_of_the_pages(capsys):
    assert headline.main([]) == 0, capsys.readouterr().out


def test_ratios_are_those_that_the_pages_say():
    """Each page rounds its own ratios, from milliseconds with more places."""
    for machine in MACHINES:
        text = (headline.RESULTS / machine.page).read_text()
        section = text.partition(f"## {machine.title}\n")[2].partition("\n## ")[0]
        for network, epoch in headline.epochs(machine).items():
            word = next(name for name, shown in headline.NETWORKS.items() if shown == network)
            cells = [cell.strip() for cell in re.search(rf"^\| {word}.*$", section, re.MULTILINE)[0].split("|")]
            assert [float(cells[7]), float(cells[8])] == pytest.approx(epoch.ratios, rel=5e-3), (machine, network)


def test_the_chart_has_a_bar_for_every_ratio():
    measured = {machine: headline.epochs(machine) for machine in MACHINES}
    tree = ElementTree.fromstring(headline.chart(measured))
    bars = [float(each.get("width")) for each in tree.findall(".//{*}rect") if each.get("x") == str(headline.LEFT)]
    rows = [epochs[network] for network in headline.NETWORKS.values() for epochs in measured.values()]
    ratios = [ratio for epoch in rows for ratio in epoch.ratios]
    scale = bars[0] / ratios[0]
    assert bars == pytest.approx([scale * ratio for ratio in ratios], abs=0.1)
    width = float(tree.get("viewBox").split()[2])
    assert all(float(each.get("x") or 0) < width - 20 for each in tree.findall(".//{*}text"))


def test_a_page_without_a_network_is_refused(tmp_path, monkeypatch):
    page = (headline.RESULTS / MACHINES[0].page).read_text()
    (tmp_path / MACHINES[0].page).write_text(page.replace("| dgl, gat |", "| dgl, gate |"))
    monkeypatch.setattr(headline, "RESULTS", tmp_path)
    with pytest.raises(ValueError, match="has no DGL GAT under 'Full graph, float32'"):
        headline.epochs(MACHINES[0])


def test_every_number_of_the_headlines_is_on_a_page_that_is_named():
    section = (headline.RESULTS / "README.md").read_text().partition("## In short\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "](" in line]
    assert len(rows) > 10
    for row in rows:
        pages = "".join((headline.RESULTS / name).read_text() for name in re.findall(r"\]\(([\w.-]+)\)", row))
        for number in re.findall(r"(?<![\w-])\d+\.\d+", row.partition(" | ")[2].rpartition(" | ")[0]):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", pages), (number, row)
