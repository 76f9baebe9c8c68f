"""The documentation site builds without a warning, and is read without a network."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.exhaustive


def test_pages_of_every_origin_are_there(site):
    """Written, made from results, and described from docstrings."""
    for page in ("index", "layers/dgl-convolutions", "results/index", "howto/environment", "reference/operators"):
        assert (site / f"{page}.html").is_file(), page
    assert "into every destination" in (site / "reference" / "operators.html").read_text()


def test_no_page_fetches_anything(site):
    fetching = re.compile(r'<(?:script|img)[^>]* src="https?:|<link[^>]* rel="stylesheet"[^>]* href="https?:')
    for page in site.rglob("*.html"):
        assert not fetching.search(page.read_text()), page


def test_every_layer_has_an_anchor_and_a_link_to_it(site):
    index, attention = ((site / "layers" / f"{name}.html").read_text() for name in ("index", "pyg-attention"))
    assert 'href="pyg-attention.html#gatv2conv"' in index and attention.count('id="gatv2conv"') == 1
    assert 'href="dgl-functions.html#dgl-ops-copy-u-sum"' in index


def test_no_sidebar_lists_the_whole_site(site):
    """A page has links to the pages of its own tab."""
    for page in site.rglob("*.html"):
        sidebar = page.read_text().partition('data-md-component="sidebar" data-md-type="navigation"')[2]
        links = re.findall(r'<a href="[^"#]+" class="md-nav__link', sidebar.partition("</nav>\n")[0])
        assert len(links) < 120, (page, len(links))


@pytest.mark.parametrize("word", ["fallback", "speedup", "macos", "uninstall"])
def test_the_index_of_the_search_has_what_people_type(site, word):
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert any(re.search(rf"\b{word}", f"{each['title']} {each['text']}", re.IGNORECASE) for each in found)
