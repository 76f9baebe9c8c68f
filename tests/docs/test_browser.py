"""The site in a browser: no page is wider than its window, tables scroll in their place, and the search finds pages."""

from __future__ import annotations

import pytest

from tests.docs import browser

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(browser.FOUND is None, reason=f"no browser is installed: one of {', '.join(browser.NAMES)}"),
]

WIDTHS = (1280, 390)
WIDER = """async ({ pages, widths }) => {
  const found = []
  for (const page of pages) {
    frame.style.width = widths[0] + "px"
    const opened = await open(page)
    await until(() => opened.document.readyState === "complete")
    for (const width of widths) {
      frame.style.width = width + "px"
      await until(() => opened.innerWidth === width)
      await wait(20) // scripts wrap tables
      const root = opened.document.documentElement
      if (root.scrollWidth > width) found.push([page, width, "scrolls to " + root.scrollWidth])
      for (const element of opened.document.querySelectorAll("article *")) {
        if (element.getBoundingClientRect().right <= width + 1 || element.closest("svg")) continue
        let holder = element.parentElement
        const scrolls = () => ["auto", "scroll"].includes(opened.getComputedStyle(holder).overflowX)
        while (holder && !scrolls()) holder = holder.parentElement
        if (!holder || holder === root || holder === opened.document.body) {
          found.push([page, width, element.outerHTML.slice(0, 120)])
          break
        }
      }
    }
  }
  return found
}"""
SEARCH = """async (words) => {
  const found = {}
  for (const word of words) {
    const opened = await open("/index.html?q=" + word)
    const results = () => [...opened.document.querySelectorAll(".md-search-result__item a")]
    await until(() => results().length > 0)
    found[word] = results().map((link) => link.pathname)
  }
  return found
}"""


def test_no_page_is_wider_than_its_window(site, tmp_path):
    pages = sorted(f"/{page.relative_to(site)}" for page in site.rglob("*.html"))
    assert len(pages) > 150
    given, index = {"pages": pages, "widths": WIDTHS}, "/search/search_index.json"
    assert browser.visit(site, tmp_path, WIDER, given, absent=[index]) == []  # each page would take megabytes of it


def test_what_is_too_wide_is_found(tmp_path):
    row = "<td>somewhat</td>" * 200
    pages = {
        "wide": f"<article><table><tr>{row}</tr></table></article>",
        "cut": f"<body style='overflow-x:clip'><article><table><tr>{row}</tr></table></article>",
        "scrolls": f"<article><div style='overflow-x:auto'><table><tr>{row}</tr></table></div></article>",
    }
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(f"<!doctype html><title>{name}</title>{text}")
    given = {"pages": [f"/{name}.html" for name in pages], "widths": WIDTHS}
    found = browser.visit(tmp_path, tmp_path / "browser", WIDER, given)
    assert {page for page, _, _ in found} == {"/wide.html", "/cut.html"}


def test_the_search_finds_what_people_type(site, tmp_path):
    found = browser.visit(site, tmp_path, SEARCH, ["fallback", "speedup", "macos", "uninstall", "GATv2Conv"])
    expected = {
        "fallback": "/howto/fallbacks.html",
        "speedup": "/faq.html",
        "macos": "/faq.html",
        "uninstall": "/install.html",
        "GATv2Conv": "/layers/",
    }
    for word, page in expected.items():
        assert any(path.startswith(page) for path in found[word]), (word, found[word])
