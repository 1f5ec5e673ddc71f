"""mkdocs: files of the repository that a page links to (recipes, configurations, sources) are part of the site."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")  # that lie beside docs/
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside docs/, and what the others link to outside of it, as text."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for page in list(files.documentation_pages()):
        for link in LINK.findall(page.content_string):
            path = _outside(page, link)
            if path is not None and files.get_file_from_path(_name(path)) is None:
                files.append(File.generated(config, _name(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that leave docs/ lead to those copies, and those of the pages beside it into docs/."""
    if page.file.src_uri in PAGES:
        return markdown.replace("](docs/", "](")

    def inside(match: re.Match[str]) -> str:
        path = _outside(page.file, match[1])
        return match[0] if path is None else f"]({'../' * page.file.src_uri.count('/')}{_name(path)}"

    return LINK.sub(inside, markdown)


def _outside(page: File, link: str) -> Path | None:
    """The path below the repository of a file that is not below docs/; None for links between pages."""
    path = (ROOT / "docs" / page.src_uri).parent.joinpath(link).resolve()
    return path.relative_to(ROOT) if path.is_file() and not path.is_relative_to(ROOT / "docs") else None


def _name(path: Path) -> str:
    """Of a file in the site."""
    if path.suffix != ".md":
        return f"files/{path}.txt"
    return "index.md" if path.name == "README.md" else str(path)
