"""mkdocs: files of the repository that a page links to are part of the site, and the commands fill their page."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from uni_train.cli.main import uni_train

ROOT = Path(__file__).resolve().parents[1]
RESEARCH = [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "research").rglob("*.*"))]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", *RESEARCH)  # beside docs/
COMMANDS = "reference/cli.md"
BEHIND = ("reference", "results.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""First parts of paths whose pages the search lists behind guides. A title counts a thousand times as much as text."""
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and tables that lie beside docs/, and what the others link to outside of it, as text."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for page in list(files.documentation_pages()):
        for link in LINK.findall(page.content_string):
            path = _outside(page, link)
            if path is not None and files.get_file_from_path(_name(path)) is None:
                files.append(File.generated(config, _name(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that leave docs/ lead to those copies, those of the pages beside it into docs/; commands are added.

    The search leaves pages of research out: results.md lists them.
    """
    source = page.file.src_uri
    boost = 0.001 if source.partition("/")[0] in BEHIND else 1
    page.meta["search"] = {"exclude": source in RESEARCH, "boost": boost}
    if source == COMMANDS:
        return "\n".join([markdown, *commands(uni_train, None, "uni_train")])
    if source in PAGES:
        return re.sub(r"\]\((\.\./)?docs/", r"](\1", markdown)

    def inside(match: re.Match[str]) -> str:
        path = _outside(page.file, match[1])
        return match[0] if path is None else f"]({'../' * source.count('/')}{_name(path)}"

    return LINK.sub(inside, markdown)


def commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    """Markdown of a command and of those below it: its help as `--help` has it, its options as a table.

    mkdocs-click is not used: it prints click's own mark for "no default", and joins the lines behind a backspace.
    """
    context = command.context_class(command, parent, name, **command.context_settings)
    path = context.command_path
    yield f"\n{'#' * path.count(' ')}## {path} {{ #{path.replace(' ', '-')} data-toc-label='{name}' }}\n"
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        first, _, lines = part.partition("\n")
        title, _, block = lines.partition("\n")
        yield f"{title}\n\n```text\n{inspect.cleandoc(block)}\n```\n" if first == "\b" else f"{part}\n"
    yield f"```text\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```\n"
    yield "| Option | Meaning |\n|---|---|"
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            yield f"| `{record[0]}` | {html.escape(record[1]).replace('|', '&#124;')} |"
    for below in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from commands(command.get_command(context, below), context, below)


def _outside(page: File, link: str) -> Path | None:
    """The path below the repository of a file that is not below docs/; None for links between pages."""
    path = (ROOT / "docs" / page.src_uri).parent.joinpath(link).resolve()
    return path.relative_to(ROOT) if path.is_file() and not path.is_relative_to(ROOT / "docs") else None


def _name(path: Path) -> str:
    """Of a file in the site."""
    if path == Path("README.md"):
        return "index.md"
    return str(path) if str(path) in PAGES else f"files/{path}.txt"
