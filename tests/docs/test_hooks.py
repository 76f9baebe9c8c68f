"""What docs/hooks.py makes of folders and of tables of layers."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.docs.blocks import ROOT

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
HOOKS = runpy.run_path(str(ROOT / "docs" / "hooks.py"))


def test_links_between_pages_lead_somewhere():
    """MkDocs says so too, when it builds the site, which takes a minute."""
    made, docs = {uri for kind in ("results", "examples", "layers") for uri in HOOKS[kind]()}, ROOT / "docs"
    broken = []
    for page in docs.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+\.\w+)", page.read_text()):
            found = (page.parent / target).resolve()
            if not found.exists() and found.relative_to(docs).as_posix() not in made:
                broken.append((page.relative_to(docs).as_posix(), target))
    assert not broken


def test_a_folder_is_listed_under_the_headings_of_its_index():
    pages = {
        "a/index.md": "# A\n\n[none](../b.md)\n\n## One\n\n- [x](x.md), [z](z.md#part)\n\n"
        "## Empty\n\n## Two\n\n[y](y.md) [x](x.md)\n",
        **{f"a/{name}.md": "" for name in "wxyz"},
        "b.md": "",
    }
    nav = [{"B": "b.md"}, {"Part": [{"A": "a/"}]}, {"None": "c/"}]
    assert HOOKS["listed"](nav, pages) == [
        {"B": "b.md"},
        {"Part": [{"A": ["a/index.md", {"Two": ["a/y.md", "a/x.md"]}, "a/w.md", "a/z.md"]}]},
    ]


def test_each_layer_has_one_anchor():
    table = [
        "| layer | ours |",
        "| --- | --: |",
        "| dgl.ops.copy_u, sum | 1 |",
        "| GATConv | 1 |",
        "| GATConv, mean | 2 |",
    ]
    lines, names = HOOKS["anchored"](["# Layers", "", *table])
    assert names == ["dgl.ops.copy_u", "GATConv"]
    assert lines[4:] == [
        "| [dgl.ops.copy_u](#dgl-ops-copy-u){ #dgl-ops-copy-u }, sum | 1 |",
        "| [GATConv](#gatconv){ #gatconv } | 1 |",
        "| GATConv, mean | 2 |",
    ]


def test_every_case_of_the_pages_is_below_an_anchor():
    pages = HOOKS["layers"]()
    assert pages["layers/index.md"].count("](") > 300
    for name, text in pages.items():
        if name != "layers/index.md":
            first = text.split("\n| --- ")[1].splitlines()[1]
            assert first.startswith("| ["), name
