"""Runs and evaluations as TensorBoard shows them: its data provider reads our own files, live; nothing is converted.

    runs/stars_mapping/seed0/03-finetune    a line of metrics.jsonl, rollouts.jsonl or held_out.jsonl is a point
    runs/stars_mapping/seed0                summary.json: scores before (step 0), after each round, and after
    runs/stars_mapping/seed0/evals          evaluations of its checkpoints, each at the update that it was reached
    runs/sft/seed0/00-sft                   images of held-out prompts, a series a prompt
    evals/nano-unisandbox-0a1b2c            any other evaluation; its tables are texts

TensorBoard brings the server, the page and its plugins. Left out: all other images, which report.html shows with their
verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard import program
from tensorboard.data import provider
from tensorboard.plugins.core.core_plugin import CorePluginLoader
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.image.images_plugin import ImagesPlugin
from tensorboard.plugins.metrics.metrics_plugin import MetricsPlugin
from tensorboard.plugins.scalar.scalars_plugin import ScalarsPlugin
from tensorboard.plugins.text import metadata
from tensorboard.plugins.text.text_plugin import TextPlugin
from werkzeug.exceptions import Forbidden

from uni_train.core.addresses import HEADERS, foreign
from uni_train.core.errors import UserError
from uni_train.core.folders import walk
from uni_train.core.reading_limits import parse_json, read_json, read_text
from uni_train.eval.benchmark import Table
from uni_train.eval.scored import read_scored, shard_path
from uni_train.eval.validation import finished
from uni_train.run_folder import place_of

HELD_OUT = "held_out"
LOGS = ("metrics.jsonl", "rollouts.jsonl", "held_out.jsonl", "held_out_loss.jsonl")
EVALUATION, SUMMARY = "scores.json", "summary.json"
WITHOUT = {
    "checkpoints",
    "drawn",
    "gallery",
    HELD_OUT,
    "model",
    "scored",
    "shards",
    "store",
    "wandb",
}  # no logs there
MOST_TICKED = 40  # runs that TensorBoard's older pages show unasked
FRESH = 2.0  # seconds for which a look at the folder counts

Points = dict[int, tuple[float, Any]]
"""Step -> wall time, and a number, a text or the key of an image."""


@dataclass
class Series:
    """What is known of a folder: run -> tag -> points. places: key of an image -> its file, and its row there."""

    scalars: dict[str, dict[str, Points]] = field(default_factory=dict)
    texts: dict[str, dict[str, Points]] = field(default_factory=dict)
    images: dict[str, dict[str, Points]] = field(default_factory=dict)
    places: dict[str, tuple[Path, int]] = field(default_factory=dict)

    def add(self, run: str, tag: str, step: int, when: float, value: Any) -> None:
        kind = self.texts if isinstance(value, str) else self.scalars
        kind.setdefault(run, {}).setdefault(tag, {})[step] = (when, value)

    def add_image(self, run: str, tag: str, step: int, when: float, *place: Any) -> None:
        key = f"{run} {tag} {step}"
        self.images.setdefault(run, {}).setdefault(tag, {})[step] = (when, key)
        self.places[key] = place


class Runs(provider.DataProvider):  # type: ignore[misc]  # TensorBoard has no annotations
    """Everything below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read_at = float("-inf")
        self._series = Series()

    @property
    def series(self) -> Series:
        """What is there now, at most FRESH seconds old."""
        if time.monotonic() - self._read_at > FRESH:
            self._series, self._read_at = read(self.folder), time.monotonic()
        return self._series

    def data_location(self, ctx: Any = None, *, experiment_id: str) -> str:
        return str(self.folder)

    def list_plugins(self, ctx: Any = None, *, experiment_id: str) -> list[str]:
        return ["scalars", "text", "images"]

    def list_runs(self, ctx: Any = None, *, experiment_id: str) -> list[Any]:
        series = self.series
        names = series.scalars.keys() | series.texts.keys() | series.images.keys()
        return [provider.Run(name, name, None) for name in sorted(names)]

    def list_scalars(self, ctx: Any = None, **query: Any) -> dict[str, dict[str, Any]]:
        return self._list("scalars", provider.ScalarTimeSeries, b"", **query)

    def read_scalars(self, ctx: Any = None, **query: Any) -> dict[str, dict[str, list[Any]]]:
        return self._read("scalars", provider.ScalarDatum, **query)

    def read_last_scalars(self, ctx: Any = None, **query: Any) -> dict[str, dict[str, Any]]:
        scalars = self.read_scalars(**query)
        return {run: {tag: points[-1] for tag, points in tags.items()} for run, tags in scalars.items()}

    def list_tensors(self, ctx: Any = None, **query: Any) -> dict[str, dict[str, Any]]:
        content = metadata.create_summary_metadata(display_name="", description="").plugin_data.content
        return self._list("text", provider.TensorTimeSeries, content, **query)

    def read_tensors(self, ctx: Any = None, **query: Any) -> dict[str, dict[str, list[Any]]]:
        return self._read("text", lambda s, t, text: provider.TensorDatum(s, t, np.array([text.encode()])), **query)

    def list_blob_sequences(self, ctx: Any = None, **query: Any) -> dict[str, dict[str, Any]]:
        content = image_metadata.create_summary_metadata("", "").plugin_data.content
        return self._list("images", partial(provider.BlobSequenceTimeSeries, max_length=3), content, **query)

    def read_blob_sequences(self, ctx: Any = None, **query: Any) -> dict[str, dict[str, list[Any]]]:
        def datum(step: int, when: float, key: str) -> Any:
            # TensorBoard expects width and height before an image, and looks at neither.
            return provider.BlobSequenceDatum(step, when, (provider.BlobReference(key),) * 3)

        return self._read("images", datum, **query)

    def read_blob(self, ctx: Any = None, *, blob_key: str) -> bytes:
        shard, row = self.series.places[blob_key]
        return read_scored(shard)[row].sample.images[-1]

    def _matching(self, plugin: str, wanted: str, accepts: Any) -> Iterator[tuple[str, str, Points]]:
        runs, tags = (None, None) if accepts is None else (accepts.runs, accepts.tags)
        series = self.series
        tags_by_run = {"scalars": series.scalars, "text": series.texts, "images": series.images}[plugin]
        for run, by_tag in tags_by_run.items() if wanted == plugin else ():
            for tag, points in by_tag.items():
                if (runs is None or run in runs) and (tags is None or tag in tags):
                    yield run, tag, points

    def _list(
        self,
        plugin: str,
        kind: Any,
        content: bytes,
        *,
        experiment_id: str,
        plugin_name: str,
        run_tag_filter: Any = None,
    ) -> dict[str, dict[str, Any]]:
        listed: dict[str, dict[str, Any]] = {}
        for run, tag, points in self._matching(plugin, plugin_name, run_tag_filter):
            last = max(points)
            listed.setdefault(run, {})[tag] = kind(
                max_step=last, max_wall_time=points[last][0], plugin_content=content, description="", display_name=""
            )
        return listed

    def _read(
        self, plugin: str, kind: Any, *, experiment_id: str, plugin_name: str, downsample: int | None = None,
        run_tag_filter: Any = None,
    ) -> dict[str, dict[str, list[Any]]]:  # fmt: skip
        read: dict[str, dict[str, list[Any]]] = {}
        for run, tag, points in self._matching(plugin, plugin_name, run_tag_filter):
            steps = sorted(points)
            if downsample and len(steps) > downsample:
                steps = [steps[round(i * (len(steps) - 1) / max(downsample - 1, 1))] for i in range(downsample)]
                steps[-1] = max(points)
            read.setdefault(run, {})[tag] = [kind(step, *points[step]) for step in steps]
        return read


class Server(program.WerkzeugServer):  # type: ignore[misc]
    """TensorBoard's, which refuses pages of other sites and closes connections on which nothing comes."""

    def __init__(self, app: Any, flags: Any) -> None:
        def own(asked: Any, start: Any) -> Any:
            refused = foreign(asked.get("HTTP_HOST"), asked.get("HTTP_ORIGIN"))
            return Forbidden(refused)(asked, start) if refused else app(asked, start)

        super().__init__(own, flags)
        how = {"timeout": HEADERS, "log_error": lambda *_: None}
        self.RequestHandlerClass: Any = type("Handler", (self.RequestHandlerClass,), how)


class Viewer(program.TensorBoard):  # type: ignore[misc]
    """TensorBoard over a folder of ours."""

    def __init__(self, folder: Path) -> None:
        # The first is the page that opens: of them only Metrics ("Time Series") shows more than MOST_TICKED runs.
        plugins = [CorePluginLoader, MetricsPlugin, ScalarsPlugin, ImagesPlugin, TextPlugin]
        super().__init__(plugins=plugins, server_class=Server)
        self._runs = Runs(folder)

    def _make_data_provider(self) -> tuple[Runs, None]:
        return self._runs, None


def serve(folder: Path, port: int) -> str:
    """Serve `folder` on loopback in a thread; returns the address.

    Raises:
        UserError: the port is taken.
    """
    viewer = Viewer(folder)
    # The interval at which the page asks again is the page's own setting.
    viewer.configure(argv=["uni_train", f"--logdir={folder}", "--host=127.0.0.1", f"--port={port}"])
    try:
        return str(viewer.launch())
    except program.TensorBoardServerException as error:
        raise UserError(f"cannot serve at port {port}: {error}", "Give another one: --port 6007.") from error


def read(folder: Path) -> Series:
    """All logs, summaries and evaluations below a folder. A file that cannot be read is left out."""
    series, folder = Series(), folder.resolve()  # evaluations name their run by its whole path
    places = [*walk(folder, WITHOUT)]
    real = {place.resolve(): place for place, _, _ in places}
    for place, folders, files in places:
        for shard in (shard_path(step, 0) for step in finished(place / HELD_OUT) if HELD_OUT in folders):
            try:
                when = shard.stat().st_mtime
                for tag, step, row in _drawn(shard, when):
                    series.add_image(_shown(place, folder), tag, step, when, shard, row)
            except (OSError, ValueError, KeyError, UserError):
                continue
        for name in {*LOGS, EVALUATION, SUMMARY} & set(files):
            path = place / name
            try:
                stat = path.stat()
                points = _points(path, stat.st_mtime_ns, stat.st_size)
            except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError):
                continue
            for where, tag, step, value in points:
                run = real.get(where.parent)  # None: its run is not below what is shown
                shown = where if where.is_relative_to(folder) else path.parent if run is None else run / where.name
                series.add(_shown(shown, folder), tag, step, stat.st_mtime, value)
    return series


def _shown(path: Path, folder: Path) -> str:
    """runs/sft/seed0/stages/00-sft -> runs/sft/seed0/00-sft."""
    parts = [part for part in path.relative_to(folder).parts if part != "stages"]
    return "/".join(parts) or folder.name


@lru_cache(maxsize=4096)
def _points(path: Path, changed: int, size: int) -> list[tuple[Path, str, int, float | str]]:
    """(whose, tag, step, value) of a file in this state."""
    text = read_text(path)
    if path.name in LOGS:
        lines = (parse_json(line, path, nan=True) for line in text.split("\n")[:-1])
        prefix = "" if path.name == LOGS[0] else f"{path.stem}/"
        return [
            (path.parent, prefix + tag, int(line["step"]), value)
            for line in lines
            for tag, value in _numbers({key: value for key, value in line.items() if key != "step"})
        ]
    document = parse_json(text, path)
    return list(_of_summary(path, document) if path.name == SUMMARY else _of_evaluation(path, document))


@lru_cache(maxsize=4096)
def _drawn(shard: Path, changed: float) -> list[tuple[str, int, int]]:
    """(tag, step, row) of every image of a validation in this state."""
    rows = [(row, answer.sample) for row, answer in enumerate(read_scored(shard, images=False)) if answer.sample.drawn]
    cases = [(row, sample.ask.case, sample.facts["step"]) for row, sample in rows]
    return [(f"{HELD_OUT}/{case.id} {case.prompt[:60]}", step, row) for row, case, step in cases]


def _of_summary(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[Path, str, int, float | str]]:
    scores = document["scores"]
    after = {"after": scores["after"]} if "after" in scores else {}
    labels = {"before": scores.get("before", {}), **document.get("after_round", {}), **after}
    for step, by_mode in enumerate(labels.values()):
        for tag, value in _estimates(by_mode):
            yield path.parent, f"scores/{tag}", step, value


def _of_evaluation(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[Path, str, int, float | str]]:
    asked = read_json(path.with_name("evaluation.json"))
    place = place_of(Path(asked["checkpoint"]))
    run, step = (path.parent, 0) if place is None else (place.run / "evals", place.updates)
    for result in document["results"]:
        for tag, value in _estimates(result["scores"]):
            yield run, f"{result['name']}/{tag}", step, value
        for raw in result["tables"]:
            table = Table.from_dict(raw)
            yield run, f"{result['name']}/{table.title}", step, _markdown(table)


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """{"loss": 1, "seconds": {"update": 2}} -> ("loss", 1.0), ("seconds/update", 2.0)."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            if {"value", "n", "low", "high"} <= value.keys():
                yield from _estimates({key: value}, prefix)
            else:
                yield from _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + key, float(value)


def _estimates(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every estimate below, by its place: ("normal/math1", 0.25)."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            if {"value", "n", "low", "high"} <= value.keys():
                if value["value"] is not None:
                    yield prefix + key, float(value["value"])
            else:
                yield from _estimates(value, f"{prefix}{key}/")


def _markdown(table: Table) -> str:
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    lines = ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n\n".join(filter(None, (table.questions, "\n".join(lines), table.note)))
