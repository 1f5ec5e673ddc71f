"""What the documentation shows holds: commands parse, recipes compose, links and paths exist, tables of keys agree."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pytest
import torch

import uni_train.api
from bench import experiment
from tests.commands import commands
from uni_train.cli.evaluation.options import checkpoint_of, config_of, is_key, overrides_of
from uni_train.cli.main import uni_train as command_line
from uni_train.config.compose import compose
from uni_train.data_gen import sprites
from uni_train.insight.analyses import KEYS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "research").glob("*.md")])
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
FOLDERS = ("uni_train", "data_gen", "eval", "recipes", "configs", "bench", "tests", "docs", "research")


def shown_code(page: Path) -> Iterator[str]:
    """Lines of code blocks and code inside sentences."""
    fenced = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip().removeprefix("$ ")
        else:
            yield from re.findall(r"`([^`]+)`", line)


def shown_commands() -> list[tuple[str, ...]]:
    """Each once, up to a comment, a redirection or the next command."""
    starts = ("python -m ", "python bench/", "make ", "uni_train ", ".ci/")
    shown = [re.sub("  +# .*", "", code) for p in PAGES for code in shown_code(p) if code.startswith(starts)]
    ends = (">", "|", "&&", ";", "#")
    return list(dict.fromkeys(tuple(takewhile(lambda word: word not in ends, shlex.split(one))) for one in shown))


COMMANDS = {"uni_train": command_line} | {f"uni_train {words}": command for words, command in commands()}


def check_uni_train(arguments: list[str]) -> None:
    path = "uni_train"
    while arguments and f"{path} {arguments[0]}" in COMMANDS:
        path, arguments = f"{path} {arguments[0]}", arguments[1:]
    command = COMMANDS[path]
    try:
        context = command.make_context(command.name, arguments)
    except click.exceptions.Exit as ending:  # --help and its kin
        assert ending.exit_code == 0
        return
    with context:
        if command.name == "fit":
            compose(context.params["recipe"], context.params["overrides"])
        elif command.name == "eval":
            assert config_of([word for word in context.params["words"] if is_key(word) and "URL#MODEL" not in word])
        elif command.name in KEYS:
            options = dict(context.params)
            _, words = checkpoint_of(options.pop("checkpoint"), options.pop("words"))
            assert config_of(overrides_of(words, options), "insight.InsightConfig")


@pytest.mark.parametrize("command", shown_commands(), ids=" ".join)
def test_a_shown_command_can_be_typed(command: tuple[str, ...]) -> None:
    match command:
        case ["make", *targets]:
            assert targets and set(targets) <= TARGETS
        case ["python", "-m", "uni_train", *arguments] | ["uni_train", *arguments]:
            check_uni_train(arguments)
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None
        case ["python", "bench/experiment.py", *arguments]:
            chosen = experiment.parser().parse_args(arguments)
            absent = [name for name in chosen.names if name not in experiment.EXPERIMENTS]
            assert all(name.startswith("runs/") for name in absent)
            chosen.names, chosen.base = [name for name in chosen.names if name not in absent], []
            chosen.seeds = "0"
            assert absent or experiment.pages(chosen)
        case ["python", script, *_] | [script, *_]:
            assert (ROOT / script).is_file()


SYSTEMS = """BAGEL, Bagel-Zebra-CoT, Blip3o, DiMOO, Emu3, FLUX.1-Kontext-dev, FLUX.2-dev, HiDream-E1.1, ICEdit,
Janus-Pro 1B, Janus-Pro 7B, LongCat-Image-Edit, MMaDA, Omni-R1, OmniGen2, Ovis-U1, Qwen-Image, Qwen-Image-Edit-2509,
Qwen-Image-Edit-2511, SRUM, Show-o2, Step1X-Edit, T2I-R1, ThinkMorph, UniCoT, UniCoT-v2, UniMoE2, UniPic1,
UniPic2-Metaquery, UniWorld-V1, GPT-5, GPT-5-Instant, GPT-5-Thinking, Gemini-2.0-Flash, Gemini-3.0-pro, Nano Banana Pro,
Seedream 4.0, gpt-image-1, nano-banana, Kling 1.6, Seedance 1.0 Pro, Sora 2 Pro, Veo 3, Wan 2.2"""


def test_each_system_of_the_papers_has_one_command_and_who_tried_it() -> None:
    """That commands can be typed and tests are there is tested above and below, as on every page."""
    lines = (ROOT / "docs/systems.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "| `uni_train eval " in line]
    assert sorted(row[0] for row in rows) == sorted(re.split(r",\s+", SYSTEMS)) and len(rows) == 44
    assert all(re.fullmatch(r"`tests/\S+\.py`", row[4]) for row in rows)
    native = sum(row[2] == "native" and row[0] != "Wan 2.2" for row in rows)
    assert f"({native} of 30 open ones)" in " ".join(lines)


PRINTED = {"unisandbox": (13, 5), "ureason": (12, 26), "ufo": (8, 3), "vigor": (22, 12), "ueval": (5, 11)}
"""Page -> how many numbered tables and figures its paper has."""


@pytest.mark.parametrize("name", PRINTED)
def test_each_table_and_figure_of_a_paper_has_a_row(name: str) -> None:
    page = (ROOT / f"docs/benchmarks/{name}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:Table|Figure).*?) \|", page.partition("## Its tables and figures")[2], re.MULTILINE)
    numbers: dict[str, set[int]] = {"Table": set(), "Figure": set()}
    for kind, listed in re.findall(r"(Table|Figure)s? ([\d, to]+)", "; ".join(rows)):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", listed):
            numbers[kind] |= {*range(int(first), int(last or first) + 1)}
    tables, figures = PRINTED[name]
    assert numbers == {"Table": {*range(1, tables + 1)}, "Figure": {*range(1, figures + 1)}}


def test_links_and_paths_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
        paths = [code for code in re.findall(r"`([\w./-]+)`", text) if code.split("/")[0] in FOLDERS and "/" in code]
        places = [page.parent / link for link in links if link] + [ROOT / path for path in paths]
        broken += [(page.name, str(place)) for place in places if not place.exists()]
    assert broken == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    fetched = re.compile(r"""<(?:script|link|img)[^>]*=["']?https?://[^>]*>""")
    assert [tag for page in site.rglob("*.html") for tag in fetched.findall(page.read_text(encoding="utf-8"))] == []


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """Path of a command -> its part of the command reference, as Markdown."""
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    parts = re.split(
        r"^#+ (uni_train.*?) \{.*\}$", "\n".join(hooks.commands(command_line, None, "uni_train")), flags=re.M
    )
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_command_reference_has_what_help_says(reference: dict[str, str]) -> None:
    """Options with their own defaults, and every example on a line of its own."""
    assert set(reference) == set(COMMANDS)
    for path, command in COMMANDS.items():
        text = reference[path]
        assert not re.search(r"Sentinel|UNSET|\\b|\x08|`None`", text), path
        rows = [line for line in text.splitlines() if line.startswith("| `")]
        options = {one.opts[0]: one for one in command.params if isinstance(one, click.Option)}
        named = {name: next((row for row in rows if name in row), "") for name in options}
        assert [name for name, row in named.items() if not row and name not in text] == [], path
        shown = [name for name, one in options.items() if one.show_default and one.default not in (None, False)]
        assert [name for name in shown if "[default: " not in named[name]] == [], path
        blocks = "\n".join(re.findall(r"```text\n(.*?)\n```", text, re.S)).splitlines()
        examples = re.findall(r"^\s+(uni_train .*)$", inspect.getdoc(command.callback) or "", re.M)
        assert [line for line in examples if line not in blocks] == [], path


def test_every_page_and_recipe_is_listed() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    folder = ROOT / "research"
    pages = [page.name for page in folder.glob("*.md") if page.name != "README.md"]
    assert [name for name in pages if f"]({name})" not in texts[folder / "README.md"]] == []
    text = "\n".join(texts.values())
    assert [path.stem for path in (ROOT / "recipes").glob("*.yaml") if f"`{path.stem}`" not in text] == []


def test_every_name_of_the_reference_exists() -> None:
    """Also where mkdocs is not installed: a module that moves takes its entry in the reference along."""
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    for name, members in re.findall(r"^::: ([\w.]+)$(?:\n    .*)*?(?:\n      members: \[(.*)\])?$", text, re.MULTILINE):
        found = pkgutil.resolve_name(name)
        assert [one for one in members.split(", ") if one and not hasattr(found, one)] == []


# --- English that one can skim --------------------------------------------------------------------------------------

GUIDES = [page for page in PAGES if page.name not in ("CHANGELOG.md", "keys.md")]
LONGEST = 30  # words


def sentences(page: Path) -> Iterator[str]:
    """Of the paragraphs and list items; not of code, quotations, tables and headings. Code counts as one word."""
    blocks: list[list[str]] = [[]]
    fenced = False
    for line in page.read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        if fenced or not line.strip() or line.startswith(("    ", "```", "|", "#", "!", "<", ">", ":::")):
            blocks.append([])
        elif item := re.match(r"\s*(?:[-*]|\d+\.) (.*)", line):
            blocks.append([item[1]])
        else:
            blocks[-1].append(line.strip())
    for block in blocks:
        text = re.sub(r"`[^`]*`", "code", " ".join(block))
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("et al.", "et al")
        yield from re.split(r"(?<=[.!?])[*\")]*\s+", text)


def test_sentences_are_short_and_so_is_the_readme() -> None:
    counts = {
        one: sum(bool(re.search(r"\w", word)) for word in one.split()) for page in GUIDES for one in sentences(page)
    }
    assert [one for one, count in counts.items() if count > LONGEST] == []
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


def test_the_readme_and_the_results_have_the_same_numbers_of_the_demo() -> None:
    """`make demo` makes both: one table of one setting, and one time."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in (
        "README.md", "research/curriculum.md", "docs/results.md", "docs/index.md", "CONTRIBUTING.md",
        "Makefile")}  # fmt: skip
    page = texts["research/curriculum.md"].partition("\n## ")[0]
    told = {cells[1].strip("*"): [one.strip("*")[:4] for one in cells[2:5]] for line in texts["README.md"].splitlines()
            if len(cells := line.split("|")) == 6}  # fmt: skip
    before, after = ([cell.split()[0] for cell in line.split("|")[2:8]] for line in page.splitlines()
                     if line.startswith(("| before", "| after")))  # fmt: skip
    assert (told["Normal (draw at once), before"], told["Normal, after STARS"]) == (before[:3], after[:3])
    assert told["CoT (thinking first), after"] == after[3:]
    for row, words in (("answered in words", "Answered in words: "), ("best trivial strategy", "strategy: ")):
        assert words + " / ".join(told[row]) in page
    headline = f"Normal {' / '.join(after[:3])}"
    assert headline in texts["docs/results.md"] and headline.replace("Normal ", "to ") in page
    times = {name: re.findall(r"(\w+) minutes", line) for name, text in texts.items() for line in text.splitlines()
             if "make demo" in line or line.startswith(("demo:", "STARS raises"))}  # fmt: skip
    assert {one for found in times.values() for one in found} == {"four"}


def test_the_first_examples_come_right() -> None:
    """nano draws what README and the API's docstring ask for."""
    nano = uni_train.load_model("nano")
    chain = next(code for code in shown_code(ROOT / "README.md") if " generate " in code)
    drawn = [uni_train.generate(nano, shlex.split(chain)[7], think=think).image for think in (False, True)]
    assert [sprites.read(image).name == "tree" for image in drawn] == [False, True]
    prompt = re.search(r'generate\(model, "(.*trees.*)", think=True\)', str(uni_train.api.__doc__))
    assert prompt is not None
    drawing = sprites.read(uni_train.generate(nano, prompt[1], think=True).image)
    assert (drawing.name, drawing.count) == ("tree", 5)


def test_the_snippet_in_data_runs() -> None:
    lines = [line[4:] for line in (ROOT / "docs/data.md").read_text(encoding="utf-8").split("\n## ")[0].splitlines()]
    names: dict[str, Any] = {}
    exec("\n".join(lines[next(i for i, line in enumerate(lines) if line.startswith("from ")) :]), names)
    assert names["task"].verify(names["item_a"], names["image"]).passed


def test_rewards_for_other_trainers_run_as_those_call_them() -> None:
    blocks = re.findall(
        r'^```python(?: title="([^"]+)")?\n(.*?)^```', (ROOT / "docs/rewards.md").read_text(), re.M | re.S
    )
    page: dict[str, dict[str, Any]] = {title: {} for title, _ in blocks}
    for title, code in blocks:
        if title in ("unirl", "flow-factory"):
            compile(code, title, "exec")
        else:
            exec(compile(code, title or "first", "exec"), page[title])
    item = page[""]["item"]
    image = page[""]["images"][0]
    text = "\n".join(" ".join(f"#{bytes(pixel).hex()}" for pixel in row) for row in image)
    called = {"completion_ids": [[1]] * 3, "trainer_state": None, "log_extra": print, "log_metric": print}
    rows = {"item": [json.dumps(item.to_dict())] * 3, "answer": [item.answer] * 3, "level": [4] * 3}
    completions = [text, text.replace("#", "red ", 1), "I cannot draw."]
    rewards = page["trl"]["drawn_reward"](prompts=[item.prompt] * 3, completions=completions, **called, **rows)
    assert rewards == [1, 0, 0]
    for pixels, expected in zip(page[""]["images"], (1, 0), strict=True):
        scored = page["verl-omni"]["compute_score"](
            data_source="maze", solution_image=torch.from_numpy(pixels).permute(2, 0, 1),
            ground_truth=rows["item"][0], extra_info={"num_turns": None},
        )  # fmt: skip
        assert scored == {"score": expected}


# --- tables of options ----------------------------------------------------------------------------------------------


def table_rows(page: str, columns: int, title: str) -> dict[str, list[str]]:
    """First cell -> the others, of every row of the tables whose first column has this title."""
    rows: dict[str, list[str]] = {}
    inside = False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")]
        if not line.startswith("|") or cells[0] == title:
            inside = line.startswith("|")
        elif inside and not line.startswith("|-") and len(cells) >= columns:
            rows[cells[0].strip("`")] = [cell.strip("`") for cell in cells[1:]]
    return rows


@pytest.mark.parametrize(("page", "command"), [("docs/evaluation.md", "eval"), ("docs/scale.md", "launch")])
def test_a_table_of_options_is_that_of_the_command(page: str, command: str) -> None:
    context = click.Context(command_line)
    asked = command_line.get_command(context, command)
    assert asked is not None
    options = {name: param for param in asked.params for name in param.opts if param.param_type_name == "option"}
    missing = {id(param): name for name, param in options.items()}
    for cell, others in table_rows(page, 2, "option").items():
        named = re.findall(r"--[a-z_-]+", cell.replace("--sbatch=--qos=high", "--sbatch"))
        if not named:  # an empty line between groups
            continue
        assert set(named) <= options.keys(), cell
        for name in named:
            missing.pop(id(options[name]), None)
        default = options[named[0]].default
        said = isinstance(default, int | float | str) and not isinstance(default, bool) and default != ""
        if said and len(others) > 1:
            assert others[0] == str(default).removesuffix(".0"), cell
    assert not missing or command == "launch", "launch describes the rest in its sections"
