"""The hooks of mkdocs that make the pages: those of the repository, and one for each public name.

A page has the same path in the site as in the repository, so that its relative links lead to the same pages.
"""

from __future__ import annotations

import importlib.resources
import logging
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from docs.site import links, names  # noqa: E402

REFERENCE = "docs/reference"
MERMAID = "assets/mermaid.js"
# Files that are not pages, but that pages link to.
STATIC = ["LICENSE", "examples/_shared/*.py", "docs/images/*", "examples/**/*.svg"]

_log = logging.getLogger("mkdocs.plugins.launchpad")
_reference = {f"{REFERENCE}/{public.name}.md": public for public in names.public_names()}
_page_of = {name: page for page, public in _reference.items() for name in public.names}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the order of the pages. Those of docs/ have the order of docs/README.md."""
    subjects: dict[str, list[dict[str, str]]] = {subject: [] for subject in names.SUBJECTS}
    for page, public_name in _reference.items():
        subjects[public_name.subject].append({public_name.name: page})
    reference = [{subject: pages} for subject, pages in subjects.items()]
    examples = _paths("examples/*/README.md", "examples/systems/*/README.md")
    config.nav = [
        {"launchpad": "README.md"},
        {"Documentation": ["docs/README.md", *_reading_order()]},
        {"API reference": [f"{REFERENCE}/README.md", *reference]},
        {"Examples": ["examples/README.md", *examples]},
        {"Project": ["CONTRIBUTING.md", "CHANGELOG.md"]},
    ]
    return config


def _reading_order() -> list[dict[str, list[str]]]:
    """Return the sections of docs/README.md, each with its pages."""
    sections: dict[str, list[str]] = {}
    title = ""
    for line in (ROOT / "docs/README.md").read_text().splitlines():
        heading = re.match(r"\*\*(.+)\*\*", line)
        if heading:
            title = heading[1]
        links = re.findall(r"\]\(([\w/]+\.md)\)", line)
        sections.setdefault(title, []).extend(f"docs/{link}" for link in links)
    return [{title: pages} for title, pages in sections.items() if pages]


def _paths(*patterns: str) -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files that mkdocs has found with those of the repository, and add generated ones."""
    for file in [*files]:
        if not file.src_uri.startswith("assets/") and not file.generated_by:
            files.remove(file)
    paths = _paths("*.md", "docs/**/*.md", "examples/README.md", "examples/**/README.md", *STATIC)
    for path in paths:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    with importlib.resources.as_file(importlib.resources.files("mermaidx")) as package:
        path = str(package / "assets" / "mermaid.js")
        files.append(File.generated(config, MERMAID, abs_src_path=path))
    for page, public_name in _reference.items():
        files.append(File.generated(config, page, content=_reference_page(public_name)))
    files.append(File.generated(config, f"{REFERENCE}/README.md", content=_reference_index()))
    return files


def _reference_page(public_name: names.PublicName) -> str:
    options: dict[str, Any] = {"heading": public_name.name, "toc_label": public_name.name}
    text = f"---\ntitle: {public_name.name}\n---\n"
    members = [*names.members(public_name.value)] if public_name.is_module else []
    if members:
        options["members"] = False
    text += f"::: {public_name.path}\n    options: {options}\n"
    if len(public_name.names) > 1:
        text += f"\nAlso `{'`, `'.join(public_name.names[1:])}`.\n"
    return text + "".join(_line(name) for name in members)


def _reference_index() -> str:
    text = "# API reference\n\nEvery public name, with an example that was run. `import launchpad as lp`.\n"
    for subject in names.SUBJECTS:
        inside = [
            public_name.name
            for public_name in _reference.values()
            if public_name.subject == subject
        ]
        text += f"\n## {subject}\n\n" + "".join(map(_line, inside))
    return text


def _line(name: str) -> str:
    """Return an item of a list: a name, which links to its page, and the first line of its docstring."""
    page = _page_of[name]
    first = _reference[page].doc.partition("\n")[0]
    return f"- [`{name}`]({Path(page).name}): {first}\n"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Adapt a page for Python-Markdown, which is stricter than GitHub's.

    It needs an empty line before a list, and a link to a folder must name the folder's README.md.
    """
    lines: list[str] = []
    is_code = False
    for line in markdown.splitlines():
        is_code ^= line.startswith("```")
        if not is_code and _ITEM.match(line) and lines and not _INSIDE.match(lines[-1]):
            lines.append("")
        lines.append(line)
    folder = ROOT / Path(page.file.src_uri).parent

    def to_page(link: re.Match[str]) -> str:
        return f"]({link[1]}/README.md)" if (folder / link[1]).is_dir() else link[0]

    return re.sub(r"\]\(([\w./]+)\)", to_page, "\n".join(lines))


_ITEM = re.compile(r"(- |\d+\. |\|)")
_INSIDE = re.compile(r"(- |\d+\. |\|| |$)")


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Link public names to their pages; load Mermaid if there is a diagram.

    The theme itself would load Mermaid from another host.
    """
    to_root = "../" * page.url.count("/")

    def to_reference(code: re.Match[str]) -> str:
        source = _page_of.get(code[1])
        if source is None or source == page.file.src_uri:
            return code[0]
        return f'<a href="{to_root}{source.removesuffix(".md")}/">{code[0]}</a>'

    html = _NAME.sub(to_reference, html)
    if 'class="mermaid"' in html:
        html += f'\n<script src="{to_root}{MERMAID}"></script>'
    return html


_NAME = re.compile(r"(?<!\">)<code>(lp\.[\w.]+)(?:\([^<]*\))?</code>")


def on_post_build(config: MkDocsConfig) -> None:
    """Check all links of the built site, including those of menus and of the reference."""
    for fault in links.broken(Path(config.site_dir)):
        _log.warning(fault)  # the build is strict, so that a warning makes it fail
