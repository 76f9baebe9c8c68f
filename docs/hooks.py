"""Pages of the site that are not files under docs/, and the parts of its navigation that follow from what is there.

Result pages lie beside the benchmarks that made them, and examples in a folder of their own, where a reader of the code
looks for them. Layers have anchors on the site, and a list of all of them. ``<!-- README.md: NAME -->`` stands for that
part of the README.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]


def on_files(files, config):
    """Add the generated pages, then list the pages of every folder that the navigation names."""
    for uri, text in {**results(), **examples(), **layers()}.items():
        if (existing := files.get_file_from_path(uri)) is not None:
            files.remove(existing)
        files.append(File.generated(config, uri, content=text))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    config.nav = listed(config.nav, pages)
    return files


def on_page_markdown(markdown, page, config, files):
    """Put parts of the README where they are asked for, with links as that page has them."""
    up = "../" * page.file.src_uri.count("/")

    def part(asked: re.Match[str]) -> str:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        found = text.partition(f"<!-- start: {asked[1]} -->\n")[2].partition(f"<!-- end: {asked[1]} -->")[0]
        return found.replace("](docs/", f"]({up}").replace("](benchmarks/results/", f"]({up}results/")

    return re.sub(r"^<!-- README.md: (\w+) -->$", part, markdown, flags=re.MULTILINE)


def listed(nav: list, pages: dict[str, str]) -> list:
    """The navigation with what ``{"Results": "results/"}`` stands for: the index of that folder, and its pages under
    the last headings of the index whose text links to them; as they come where no heading is above its links.
    """
    found = []
    for entry in nav:
        ((title, content),) = entry.items()
        if isinstance(content, list):
            content = listed(content, pages)
        elif content.endswith("/"):
            content = _folder(content, pages)
        found.append({title: content})
    return [entry for entry in found if all(entry.values())]


def _folder(folder: str, pages: dict[str, str]) -> list:
    index = f"{folder}index.md"
    left = sorted(uri for uri in pages if uri.startswith(folder) and uri != index)
    if index not in pages:
        return left
    groups: dict[str, str] = {}  # page: the last heading that has it
    for heading, text in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", pages[index], re.MULTILINE):
        for uri in (f"{folder}{name}" for name in re.findall(r"\]\(([\w.-]+\.md)\)", text)):
            groups.pop(uri, None)
            groups[uri] = heading
    found: list = [index]
    for heading in dict.fromkeys(groups.values()):
        found.append({heading: [uri for uri in groups if groups[uri] == heading and uri in left]})
    left = [uri for uri in left if uri not in groups]
    return found + left


def results() -> dict[str, str]:
    """benchmarks/results/ as results/, figures too."""
    found = {}
    folder = ROOT / "benchmarks" / "results"
    for path in sorted([*folder.glob("*.md"), *folder.glob("*.svg")]):
        text = path.read_text(encoding="utf-8").replace("](../../docs/", "](../").replace("](README.md", "](index.md")
        found[f"results/{'index.md' if path.name == 'README.md' else path.name}"] = text
    return found


def examples() -> dict[str, str]:
    """examples/ as examples/: its table, and each script under the name it has there."""
    folder = ROOT / "examples"
    if not folder.is_dir():
        return {}
    found = {}
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        summary = (ast.get_docstring(ast.parse(source)) or path.stem).splitlines()[0]
        found[f"examples/{path.stem}.md"] = f"# {path.name}\n\n{summary}\n\n```python\n{source}```\n"
    readme = (folder / "README.md").read_text(encoding="utf-8")
    found["examples/index.md"] = re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", readme).replace("](../docs/", "](../")
    return found


def layers() -> dict[str, str]:
    """docs/layers/ with an anchor at each layer, and with links to all of them in its index."""
    folder = ROOT / "docs" / "layers"
    found, links = {}, {}
    for path in sorted(folder.glob("*-*.md")):
        lines, names = anchored(path.read_text(encoding="utf-8").splitlines())
        found[f"layers/{path.name}"] = "\n".join(lines) + "\n"
        links[path.name] = ", ".join(f"[{name}]({path.name}#{anchor(name)})" for name in names)
    index = (folder / "index.md").read_text(encoding="utf-8")
    for name, text in links.items():
        index = re.sub(rf"^(- \[.*\]\({re.escape(name)}\).*)$", rf"\1. {text}", index, flags=re.MULTILINE)
    found["layers/index.md"] = index
    return found


def anchored(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Lines of a page with a table of cases, the first of each layer with an anchor, and the names of the layers."""
    found, names, below = [], [], False
    for line in lines:
        name = re.match(r"(?:\| )?([^,|]*[^,| ])?", line)[1]
        if below and line.startswith("| ") and name not in names:
            names.append(name)
            behind = line.removeprefix(f"| {name}")
            line = f"| [{name}](#{anchor(name)}){{ #{anchor(name)} }}{behind}"
        below = below or line.startswith("| ---")
        found.append(line)
    return found, names


def anchor(name: str) -> str:
    """The words of a name: ``"dgl-ops-copy-u-sum"``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
