"""`uni_train data`: make training and test files, look at them, and check those of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.commands import completer
from uni_train.console.terminal import echo
from uni_train.core.errors import UsageError

if TYPE_CHECKING:
    from uni_train.console.progress import ConsoleProgress
    from uni_train.data_gen.export import ExportSummary, Form
    from uni_train.data_gen.task import Item, Task
    from uni_train.rewards.audit import AttackTally

    Rows = str | Form  # a format of `data_gen.export.make`
    Chosen = dict[str, tuple[Task, tuple[int, ...]]]  # name -> the task, and its levels


class Levels(click.ParamType):
    """ "3", or a range "2-7"."""

    name = "N or N-M"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        first, dash, last = str(value).partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            self.fail(f"{value} is neither a number nor a range such as 2-7", param, ctx)
        levels = tuple(range(int(first), int(last if dash else first) + 1))
        return levels or self.fail(f"{value} is a range from high to low", param, ctx)


def _draw_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which items are drawn: those of `_build_tasks`, and --seed."""
    for option in (
        click.option("--seed", type=int, default=0, show_default=True, help="Decides every draw."),
        click.option("--pixels", type=click.IntRange(16, 8192),
                     help="Mazes, puzzles: side of the images.  [default: 512, puzzles: 256]"),
        click.option("--style", help="Mazes, puzzles: how they look.  [default: varied, puzzles: plain]"),
        click.option("--balanced", is_flag=True, default=None, help="Maths: no trivial strategy exceeds chance."),
        click.option("--world", help="nano (can be drawn) or everyday (plain words).  [default: nano]"),
        click.option(
            "--split", default="train", show_default=True,
            help="train, validation or test: never overlapping. Maths: or seen, train's expressions with new objects.",
        ),
        click.option(
            "--level", "--size", "levels", type=Levels(),
            help="How hard: `data tasks` lists the levels of each. Mazes, puzzles, ureason: or a range.  "
            "[default: 1, mazes: 4, ureason: 1-3]",
        ),
        click.option("--task", default="mapping", show_default=True, shell_complete=completer("tasks"),
                     help="maths, mapping, maze, ureason, ...: `uni_train data tasks` lists them."),
    ):  # fmt: skip
        command = option(command)
    return command


def _build_tasks(task: str, levels: tuple[int, ...] | None, split: str, **looks: Any) -> Chosen:
    """The task, or all of them, by name with their levels. These are typed, so a wrong one is an error of usage."""
    from uni_train.core.errors import DataError
    from uni_train.core.registry import PluginError
    from uni_train.data_gen.export import configured_task, every_task

    try:
        if task == "all":
            return every_task(levels or (), split, **looks)
        return {task: configured_task(task, levels or (), split, **looks)}
    except PluginError:
        raise
    except DataError as error:
        raise UsageError(str(error)) from None


@click.group()
def data() -> None:
    """Make reasoning tasks, look at them, audit files.

    \b
    Example:
      uni_train data make --task mapping --level 2 --n 100 --out my_data
    """


@data.command()
@_draw_options
@click.option(
    "--n", type=click.IntRange(1, 1_000_000), default=100, show_default=True,
    help="Draws, of each level of a range; a mapping draw is a pair.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="The folder to write.  [default: data/TASKLEVEL]")
@click.option("--force", is_flag=True, help="Replace a folder that was made by this command.")
@click.option(
    "--format", type=click.Choice(["folder", "parquet", "webdataset", "judge", "chain"]), default="folder",
    show_default=True,
    help="JSON lines and PNG files; a Parquet file for Hugging Face datasets; tar shards; right and wrong images as "
    "Parquet to train a judge; puzzles step by step as Parquet.",
)  # fmt: skip
def make(n: int, out: Path | None, force: bool, seed: int, format: str, **drawn: Any) -> None:
    """Write a folder of fresh questions with exact answers.

    The folder gets the questions in the schema of the published UniSandbox (maths, mapping) or UReason (ureason). A
    UReason folder takes the subcategories of its tasks in turn. items.jsonl has every fact and thought. The nano world
    adds the images that answer, tasks that edit also the images that ask.

    --task all makes a folder for each task, and a page of them, index.html. Options that say nothing about a task are
    ignored. A task without the level takes its lowest one.

    \b
    Examples:
      uni_train data make --task maths --level 2 --n 500 --out my_maths
      uni_train data make --task mapping --level 3 --world everyday --split test --out my_mapping
      uni_train data make --task ureason --world everyday --split test --n 200 --out my_ureason
      uni_train data make --task maze --size 2-7 --style classic --split test --n 20 --out my_mazes
      uni_train data make --task maze --n 1000 --format parquet --out my_parquet
      uni_train data make --task maths --n 4000 --format judge --out judge_rows
      uni_train data make --task all --level 1 --n 20
    """
    from uni_train.data_gen.export import make as export

    form: Rows = format
    if format == "judge":
        from uni_train.data_gen.judge_rows import JUDGE as form
    elif format == "chain":
        from uni_train.data_gen.chain_rows import CHAIN as form
    tasks, asked = _build_tasks(**drawn), drawn["levels"]
    if drawn["task"] == "all":
        _make_all(tasks, asked, n, drawn["split"], seed, out or Path("data", f"all{_range(asked)}"), force, form)
        return
    ((built, levels),) = tasks.values()
    out = out or Path("data", f"{drawn['task']}{_range(levels)}")
    made = export(built, levels, n, drawn["split"], seed, drawn["world"] or "nano", out, force, form)
    _report(made)
    if made.published is not None:
        echo(f"in the published schema: {made.published}")


def _range(levels: tuple[int, ...] | None) -> str:
    """As --level takes them: "3", "2-7"."""
    return "" if not levels else "-".join(map(str, dict.fromkeys((levels[0], levels[-1]))))


def _report(made: ExportSummary) -> None:
    pairs = f" ({made.pairs} pairs)" if made.pairs else ""
    repeats = f", {made.distinct} distinct" if made.distinct < made.items - made.pairs else ""
    pictures = f", {made.images} images" if made.images else ""
    echo(f"{made.path}: {made.items} questions{pairs}{repeats}{pictures}, {made.bytes / 1e3:.0f} kB")
    for verdict, noun in (("pass", "right"), ("fail", "wrong")):
        kinds = {kind: n for (status, kind), n in sorted(made.kinds.items()) if status == verdict}
        if kinds:
            echo(f"{noun}: {sum(kinds.values())} ({', '.join(f'{kind} {n}' for kind, n in kinds.items())})")


def _make_all(
    tasks: Chosen, asked: tuple[int, ...] | None, n: int, split: str, seed: int, out: Path, force: bool, form: Rows
) -> None:
    """A folder for each task in `out`, and the page of them."""
    from uni_train.data_gen.export import check_target
    from uni_train.data_gen.export import make as export
    from uni_train.data_gen.jsonl import filled_folder
    from uni_train.eval.report.items import gallery_page
    from uni_train.eval.report.page import write_page

    check_target(out, force, ["index.html", *tasks])
    for name, (task, _) in tasks.items():
        check_target(out / name, force, task.published)
    with filled_folder(out) as folder:
        for name, (task, levels) in tasks.items():
            if asked and levels != asked:
                echo(f"{name} has no level {asked[0]} of the split {split}: level {levels[0]}")
            made = export(task, levels, n, split, seed, "nano", folder / name, False, form)
            _report(replace(made, path=out / name))
        if form == "folder":
            write_page(folder / "index.html", gallery_page(folder, [task for task, _ in tasks.values()]))
    if form == "folder":
        echo(f"page: {out / 'index.html'}")


@data.command()
@click.option(
    "--n", type=click.IntRange(1, 100_000), default=10, show_default=True, help="Characters; two make a pair."
)
@click.option(
    "--split", default="test", show_default=True, help="train, validation, test: no name is in two; or paper."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every draw.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to write.")
def knowledge(n: int, split: str, seed: int, out: Path) -> None:
    """Invent people: what a model is taught about them in text, and which images it is then asked for.

    The folder has the layout of the published UniSandbox: knowledge/NAME.jsonl with 40 questions and answers each,
    test_knowledge with what is asked forward (NAME.jsonl) and inversely (NAME_NAME.jsonl); `eval` reads it
    by data.unisandbox=DIR.

    \b
    Example:
      uni_train data knowledge --n 10 --out my_people
    """
    from uni_train.core.errors import did_you_mean
    from uni_train.data_gen.knowledge.people import PAPER, make_knowledge
    from uni_train.data_gen.task import SPLITS

    if split not in (*SPLITS, PAPER):
        raise UsageError(f"unknown split {split}", did_you_mean(split, (*SPLITS, PAPER), "splits"))
    made = make_knowledge(out, n, seed, split)
    echo(f"{made.path}: {len(made.names)} characters, {made.lessons} lessons, {made.questions} questions")
    echo(", ".join(made.names))


@data.command()
@_draw_options
@click.argument("made", type=click.Path(path_type=Path), metavar="[FOLDER]", required=False)
@click.option("--n", type=click.IntRange(1, 10_000), default=8, show_default=True, help="How many questions to show.")
@click.option("--out", type=click.Path(path_type=Path), help="Also draw them: one sheet, .png, or a page, .html.")
def show(made: Path | None, n: int, out: Path | None, seed: int, **drawn: Any) -> None:
    """Show some questions with their thoughts and answers.

    FOLDER is one that `data make` has written; without it, fresh questions are drawn. A page shows every level, steps
    of the solutions, and wrong images with the verifier's reasons; it has two draws a level or more.

    \b
    Examples:
      uni_train data show --task maths --level 3
      uni_train data show --task maze --size 6 --n 4 --out mazes.png
      uni_train data show my_maths --n 20 --out sheet.png
      uni_train data show --task maze --size 3-7 --n 2 --out mazes.html
    """
    suffix = out.suffix.lower() if out else ""
    if out is not None and suffix not in (".png", ".html"):
        raise UsageError(f"--out {out} must end in .png or .html")
    if made is not None:
        from uni_train.data_gen.jsonl import read_items

        items = read_items(made / "items.jsonl" if made.is_dir() else made)[:n]
    else:
        items = _drawn_items(n, seed, page=suffix == ".html", **drawn)
    for item in items:
        maze = "".join(f"\n    {line}" for line in item.facts.get("maze", ()))
        echo(f"{item.id}\n  {item.prompt}{maze}\n  {item.thought}\n  -> {item.answer}")
    if out is None:
        return
    if suffix == ".html":
        from uni_train.eval.report.items import items_page
        from uni_train.eval.report.page import write_page

        write_page(out, items_page(items))
    else:
        _write_sheet(items, out)
    echo(f"{'page' if suffix == '.html' else 'sheet'}: {out}")


def _drawn_items(n: int, seed: int, page: bool, split: str, **drawn: Any) -> list[Item]:
    """`n` fresh items of the levels together; for a page at least two draws of each, by default of every level."""
    from uni_train.data_gen.export import filled_levels

    ((task, levels),) = _build_tasks(split=split, **drawn).values()
    if page:
        levels = drawn["levels"] or tuple(filled_levels(task, split))
    each = max(-(-n // (task.items_per_draw * len(levels))), 2 if page else 1)
    items = [item for level in levels for item in task.generate(each, level, split, seed)]
    return items if page else items[:n]


def _write_sheet(items: list[Item], out: Path) -> None:
    from PIL import Image

    from uni_train.core.files import atomic_path
    from uni_train.data_gen.show import contact_sheet

    sheet = contact_sheet(items)
    with atomic_path(out) as temporary:
        Image.fromarray(sheet).save(temporary)


@data.command()
def tasks() -> None:
    """List the tasks as a Markdown table: levels, splits, what is verified, sizes of images.

    \b
    Example:
      uni_train data tasks
    """
    from uni_train.data_gen.overview import overview
    from uni_train.data_gen.registry import TASKS

    echo(overview(TASKS.names()), nl=False)


@data.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE|FOLDER")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row: id, status, expected, reason.")
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="FILE|FOLDER",
    help="Test questions, such as the published ones: count and name those that FILE asks too.",
)  # fmt: skip
def audit(file: Path, as_json: bool, against: Path | None) -> None:
    """Recompute the answers of FILE, list the rows that are not right, and show what trivial strategies reach.

    FILE is JSONL in the published UniSandbox schema (maths or symbol mapping), or the items.jsonl of `data make`. It
    can also be a UReason file of `data make` with its items.jsonl beside it. FOLDER is one of `data make`: its
    items.jsonl. The command exits with 1 when a label is wrong, else with 0.

    \b
    Examples:
      uni_train data audit math_3.jsonl
      uni_train data audit mapping3.jsonl --json > findings.jsonl
      uni_train data audit my_mapping
      uni_train data audit my_maths --against UniSandBox/benchmark/test_reasoning
    """
    import json

    from uni_train.data_gen.audit import audit_file
    from uni_train.data_gen.findings import counts, has_wrong

    if file.is_dir():
        if not (file / "items.jsonl").is_file():
            files = ", ".join(sorted(path.name for path in file.glob("*.jsonl")))
            raise UsageError(f"{file} has no items.jsonl", f"Give a file: {files or 'this folder has no .jsonl file'}.")
        file /= "items.jsonl"
    if as_json and against is not None:
        raise UsageError("--json prints rows, and --against a table of files", "Give one of the two.")
    rows = audit_file(file)
    if as_json:
        for row in rows:
            echo(json.dumps(row.to_dict(), ensure_ascii=False))
    else:
        from uni_train.console.progress import ConsoleProgress
        from uni_train.data_gen.audit import tally_file
        from uni_train.eval.shortcuts import table_of

        progress = ConsoleProgress()
        doubtful = [row for row in rows if row.status != "ok"]
        if doubtful:
            cells = [(row.id, row.status, row.answer, row.expected or "", row.reason) for row in doubtful]
            progress.table("Labels to look at", ("id", "status", "label", "recomputed", "reason"), cells)
        if rows:
            progress.say(
                f"{file}: {len(rows)} labels: {', '.join(f'{n} {status}' for status, n in counts(rows).items())}"
            )
        sets = tally_file(file)
        for name, tallies in sets.items():
            table = table_of(name, tallies)
            progress.table(table.title, table.columns, table.rows, table.note)
        if not sets:
            progress.say("No trivial strategy has an answer to these questions.")
        if against is not None:
            _overlap(progress, file, against)
    if has_wrong(rows):
        raise SystemExit(1)


def _overlap(progress: ConsoleProgress, file: Path, against: Path) -> None:
    from uni_train.data_gen.overlap import overlap, questions_below, read_questions

    training, (questions, unread) = read_questions(file), questions_below(against)
    shared = [overlap(name, asked, training) for name, asked in questions.items()]
    progress.table(
        f"Questions of {against} that {file} asks too",
        ("", "questions", "same prompt", "same expression or rules", f"rows of {file.name} that ask them"),
        [(each.file, each.questions, len(each.same_prompt), len(each.same_problem), each.training) for each in shared],
    )
    for each in shared:
        if each.same_problem:
            progress.say(f"{each.file}: {', '.join(each.same_problem)}")
    if unread:
        progress.say(f"not compared, for they hold no questions of maths, mapping or ours: {', '.join(unread)}")


@data.command()
@click.option(
    "--items", "items_file", type=click.Path(path_type=Path), required=True, help="The items.jsonl of `data make`."
)
@click.option("--images", type=click.Path(path_type=Path), help="A folder of images named after the items.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the verdicts go, one JSON object a line.")
@click.option("--item", "item_id", help="Judge one image: the id of its item, or the last part of it.")
@click.option("--image", type=click.Path(path_type=Path), help="The image of --item.")
def verify(items_file: Path, images: Path | None, out: Path | None, item_id: str | None, image: Path | None) -> None:
    """Judge drawn answers.

    Either a folder of them (--images, --out) or one (--item, --image; the verdict is printed). An image of the item
    maze4/test/0f3a is called 0f3a.png, maze4-test-0f3a.png or maze4/test/0f3a.png; jpg and webp will do.

    Every item gets a line with its id, its status, and the checks with their reasons. The status is pass, fail,
    unreadable or missing. A task with graded checks adds a score. Exit code 0 if every item was judged, whatever the
    verdicts; 1 if images are missing or files cannot be read; 2 for wrong options.

    \b
    Examples:
      uni_train data verify --items my_mazes/items.jsonl --images drawn --out verdicts.jsonl
      uni_train data verify --items my_mazes/items.jsonl --item 0f3a9c --image drawn/one.png
    """
    import json

    from uni_train.data_gen import verifying
    from uni_train.data_gen.jsonl import read_items

    folder_given, one_given = images is not None and out is not None, item_id is not None and image is not None
    if folder_given == one_given or (images is None) != (out is None) or (item_id is None) != (image is None):
        raise UsageError("it is not clear what to judge", "Give --images and --out, or --item and --image.")
    items = read_items(items_file)
    if item_id is not None and image is not None:
        item = verifying.find_item(items, item_id)
        judged = verifying.Judged(item, image, verifying.judge_file(item, image))
        echo(json.dumps(judged.to_dict(), ensure_ascii=False))
        return
    assert images is not None and out is not None
    from uni_train.console.progress import ConsoleProgress
    from uni_train.data_gen.jsonl import write_rows

    progress, rows = ConsoleProgress(), []
    with progress.bar("judging", len(items)) as bar:
        for row in verifying.judge_folder(items, images):
            rows.append(row)
            bar.advance()
    write_rows(out, (row.to_dict() for row in rows))
    progress.table("Verdicts", ("", *verifying.STATUSES), verifying.counts(rows))
    progress.say(f"{out}: {len(rows)} items")
    missing = [row.item.id for row in rows if row.verdict is None]
    if missing:
        more = f"\n  and {len(missing) - 10} more" if len(missing) > 10 else ""
        echo(f"no image in {images} of:\n  " + "\n  ".join(missing[:10]) + more, err=True)
        raise SystemExit(1)


@data.command("audit-verifier")
@_draw_options
@click.argument("function", metavar="[MODULE:FUNCTION]", default="verifier")
@click.option("--n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Draws, of each level.")
@click.option("--threshold", type=float, default=0.5, show_default=True, help="Scores above it accept an image.")
@click.option(
    "--patience", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True,
    help="Seconds for an image; the third image that takes longer ends the audit.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object an attack.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A folder for the first 200 wrongly scored images, and a page of them.",
)
def audit_verifier(
    function: str, n: int, threshold: float, patience: float, as_json: bool, out: Path | None, seed: int, **drawn: Any
) -> None:
    """Attack a scoring function with images that it must refuse or accept.

    The images are made from those of a task. FUNCTION is MODULE:FUNCTION, FILE.py:FUNCTION or a registered reward.
    Without it, the task's own verifier is audited. It has trl's contract, f(prompts, completions, **columns), or is
    f(image, item). Columns are id, item, input_image and target_image; images are uint8 [H, W, 3].

    A finding is an exception, no score in time, an ended process, or what is no number in [0, 1]. The command exits
    with 1 for a false accept, a false reject or a finding, else with 0.

    \b
    Examples:
      uni_train data audit-verifier --task maze --level 4
      uni_train data audit-verifier --task all --n 5
      uni_train data audit-verifier my_rewards.py:solved --task maze --style classic --n 50 --out audit
      uni_train data audit-verifier my_package.rewards:count --task maths --level 2 --threshold 0.9 --json
    """
    import json

    from uni_train.data_gen.attacks import attack_items
    from uni_train.rewards.audit import OWN, score_cases, tally_outcomes, write_report

    cases = (
        case
        for task, levels in _build_tasks(**drawn).values()
        for level in levels
        for case in attack_items(task, task.generate(n, level, drawn["split"], seed), seed, function not in OWN)
    )
    outcomes = list(score_cases(function, cases, threshold, patience))
    tallies = tally_outcomes(outcomes)
    if as_json:
        for tally in tallies:
            echo(json.dumps(asdict(tally), ensure_ascii=False))
    else:
        _show_tallies(function, tallies)
    if out is not None:
        page = write_report(out, f"Audit of {function} on {drawn['task']}", outcomes)
        echo(f"wrongly scored images: {page}", err=as_json)
    if any(tally.items for tally in tallies):
        raise SystemExit(1)


def _show_tallies(function: str, tallies: Sequence[AttackTally]) -> None:
    from uni_train.console.progress import ConsoleProgress

    progress = ConsoleProgress()
    must = {"accept": "accept", "refuse": "refuse", "survive": "any score"}
    columns = ("attack", "must", "n", "wrong", "share [95 %]", "findings")
    rows = [
        (t.attack, must[t.expected], t.n, t.wrong, "" if t.expected == "survive" else t.share, sum(t.problems.values()))
        for t in tallies
    ]
    progress.table(f"Audit of {function}", columns, rows)
    problems = dict.fromkeys(problem for tally in tallies for problem in tally.problems)
    if problems:
        by_problem = [(problem, [t for t in tallies if problem in t.problems]) for problem in problems]
        cells = [(problem, some[0].attack, sum(t.problems[problem] for t in some)) for problem, some in by_problem]
        progress.table("Findings", ("finding", "first attack", "images"), cells)
    for name, expected in (("false accepts", "refuse"), ("false rejects", "accept")):
        some = [tally for tally in tallies if tally.expected == expected]
        progress.say(f"{name}: {sum(t.wrong for t in some)} of {sum(t.share.n for t in some)} images")
