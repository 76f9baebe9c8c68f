"""Pages of the site that are not files under docs/, and the parts of its navigation that follow from what is there.

Result pages lie beside the benchmarks that made them, and examples in a folder of their own, where a reader of the code
looks for them. The table of environment variables is printed by the package.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]


def on_files(files, config):
    """Add the generated pages, then list the pages of every folder that the navigation names."""
    for uri, text in {**results(), **examples(), **environment()}.items():
        if (existing := files.get_file_from_path(uri)) is not None:
            files.remove(existing)
        files.append(File.generated(config, uri, content=text))
    present = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = [_listed(entry, present) for entry in config.nav]
    config.nav = [entry for entry in config.nav if entry]
    return files


def _listed(entry, present: list[str]):
    """``{"Results": "results/"}`` with the pages of that folder, its index first; nothing if there are none."""
    ((title, content),) = entry.items()
    if not isinstance(content, str) or not content.endswith("/"):
        return entry
    pages = [uri for uri in present if uri.startswith(content)]
    return {title: sorted(pages, key=lambda uri: not uri.endswith("/index.md"))} if pages else None


def results() -> dict[str, str]:
    """benchmarks/results/ as results/, figures too."""
    found = {}
    folder = ROOT / "benchmarks" / "results"
    for path in sorted([*folder.glob("*.md"), *folder.glob("*.svg")]):
        text = path.read_text(encoding="utf-8").replace("](../../docs/", "](../").replace("](README.md", "](index.md")
        found[f"results/{_page(path.name)}"] = text
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


def environment() -> dict[str, str]:
    """howto/environment.md, with the package's own table of variables at its end."""
    from gnn_sparse_backend.config import markdown_table

    text = (ROOT / "docs" / "howto" / "environment.md").read_text(encoding="utf-8")
    return {"howto/environment.md": f"{text}\n{markdown_table()}\n"}


def _page(name: str) -> str:
    return "index.md" if name == "README.md" else name
