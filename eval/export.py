"""Finished evaluations in the formats of others: the way out.

    lighteval        results/MODEL/results_TIME.json, details/MODEL/TIME/details_TASK_TIME.parquet
    model_card       .eval_results/NAME.yaml, for the repository of the model on the Hub
    every_eval_ever  data/NAME/DEVELOPER/MODEL/UUID.json, with intervals and judges

Sources: huggingface.co/docs/lighteval/saving-and-reading-results; huggingface.co/docs/hub/eval-results;
github.com/evaleval/every_eval_ever, eval.schema.json, version 0.3.0.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from uni_train import __version__
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_path, atomic_write_text
from uni_train.core.hub import id_of
from uni_train.eval.benchmark import BENCHMARKS, PUBLISHED
from uni_train.eval.evaluation import CPU, Evaluation
from uni_train.eval.images import digest_of
from uni_train.eval.leaderboard import Column, columns_of
from uni_train.eval.sample import Scored
from uni_train.eval.statistics import CONFIDENCE, Estimate
from uni_train.eval.submission import file_name

ALL = "_average"  # in the place of a set: what a leaderboard shows, as lighteval names it
_Z = 1.959964  # half a 95 % interval in standard errors
_INTERVAL = {"confidence_level": CONFIDENCE, "method": "mid-P at the effective sample size (Korn and Graubard 1998)"}


def export(done: Evaluation, form: str, out: Path, organization: str = "unknown") -> Iterator[Path]:
    """Write one format below `out`, file by file. organization: who evaluated, for Every Eval Ever.

    Raises:
        UserError: damaged samples; `model_card` of an evaluation without published questions on the Hub.
    """
    began = datetime.strptime(done.asked["started"], "%Y-%m-%dT%H:%M:%S%z")
    if form == "lighteval":
        yield from _lighteval(done, out, began)
    elif form == "model_card":
        yield from _model_card(done, out, began)
    else:
        yield from (_every_eval_ever(done, name, out, began, organization) for name in done.results)


def scores_of(done: Evaluation, benchmark: str) -> Iterator[tuple[Column, str, Estimate]]:
    """The columns of a leaderboard: the score (`ALL`), and that of each set; what has no score is left out."""
    for column, counted in columns_of(done, benchmark):
        yield column, ALL, column.metric(counted)
        yield from ((column, name, part.mean()) for name, part in counted.by("set").items())


def _model_id(done: Evaluation) -> str:
    """org/name of a model from the Hub, else its name."""
    hub = id_of(Path(str(done.asked["model"].get("source", ""))))
    return str(done.asked["model"]["name"]) if hub is None else hub.partition("@")[0]


def _repo(done: Evaluation, benchmark: str) -> str:
    """The Hub's data set of the questions; "" where they are not published ones, or lie elsewhere."""
    return BENCHMARKS.get(benchmark).hub if done.results[benchmark].questions.startswith(PUBLISHED) else ""


def _written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(file, text)
    return file


def _lighteval(done: Evaluation, out: Path, began: datetime) -> Iterator[Path]:
    stamp, place = began.strftime("%Y-%m-%dT%H-%M-%S.%f"), Path(*map(file_name, _model_id(done).split("/")))
    results: dict[str, dict[str, float | None]] = defaultdict(dict)
    for name in done.results:
        for column, part, estimate in scores_of(done, name):
            metric = ":".join(filter(None, ("score", column.label, column.part if part == ALL else "")))
            # The format knows symmetric errors: half the interval's width in standard errors.
            numbers = {"": estimate.value, "_stderr": (estimate.high - estimate.low) / (2 * _Z), "_n": estimate.n}
            numbers |= {"_low": estimate.low, "_high": estimate.high}
            results[_task(name, column.setting, part)] |= {metric + key: value for key, value in numbers.items()}
    general = {
        "lighteval_sha": "?",  # as lighteval writes where it does not know
        "uni_train_version": __version__,
        "max_samples": done.asked.get("subset"),
        "start_time": began.timestamp(),
        "total_evaluation_time_secondes": str(sum(took for phase, took in done.seconds.items() if phase != CPU)),
        "model_name": _model_id(done),
        "model_sha": done.asked["model"]["content"],
        "model_config": done.asked["model"]["settings"],
    }
    document = {
        "config_general": general,
        "results": results,
        "versions": {task: done.results[task.partition(":")[0]].revision for task in results},
        "config_tasks": {
            name: {"name": name, "hf_repo": _repo(done, name), "questions": result.questions, "judge": result.judge}
            for name, result in done.results.items()
        },
    }
    yield _written(out / "results" / place / f"results_{stamp}.json", json.dumps(document, indent=2))
    for name in done.results:
        yield from _details(done, name, out / "details" / place / stamp, stamp)


def _task(benchmark: str, setting: str, name: str) -> str:
    """lighteval's TASK:SUBSET|FEWSHOTS."""
    return f"{benchmark}:{setting}:{name}|0"


def _details(done: Evaluation, benchmark: str, folder: Path, stamp: str) -> Iterator[Path]:
    """A file for each setting and set: lighteval's columns, and what became of the sample."""
    import pyarrow as pa
    from pyarrow import parquet

    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for answer in done.scored(benchmark):
        rows[_task(benchmark, answer.sample.ask.setting, answer.sample.ask.case.set)].append(_detail(benchmark, answer))
    folder.mkdir(parents=True, exist_ok=True)
    for task, some in rows.items():
        file = folder / f"details_{file_name(task)}_{stamp}.parquet"
        with atomic_path(file) as path:
            parquet.write_table(pa.Table.from_pylist(some), path)
        yield file


def _detail(benchmark: str, answer: Scored) -> dict[str, Any]:
    sample, case = answer.sample, answer.sample.ask.case
    texts = [part for part in (sample.thought, sample.text) if part is not None]
    return {
        "doc": {"id": case.id, "query": case.prompt, "task_name": benchmark, "draw": sample.ask.k},
        "metric": {"score": float(answer.passed) if answer.value is None else answer.value},
        "model_response": {"input": sample.prompt, "text": texts, "images": [*map(digest_of, sample.drawn)]},
        "outcome": answer.outcome,
        "judged_by": answer.by,
        "judge_replies": [*map(str, answer.replies)],
    }


def _model_card(done: Evaluation, out: Path, began: datetime) -> Iterator[Path]:
    """A file for each benchmark and setting: the Hub wants variants apart. Values are per cent."""
    import yaml

    wanted = [name for name in done.results if _repo(done, name)]
    if not wanted:
        raise UserError(
            f"{done.folder} has nothing for a model card: no published questions of a data set on the Hub",
            "Give published files with data.NAME=hf://... Generated questions are not the benchmark.",
        )
    for name in wanted:
        for column, part, estimate in scores_of(done, name):
            if part != ALL:
                continue
            result, way = done.results[name], [*filter(None, (column.setting, column.label, column.part))]
            judge = "programs" if result.judge is None else result.judge["name"]
            entry = {
                "dataset": {"id": _repo(done, name), "task_id": "default"},
                "value": round(100 * (estimate.value or 0.0), 2),
                "date": began.isoformat(),
                "notes": f"{' '.join(way)}, 95 % interval [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}], "
                f"n {estimate.n}, judge {judge}, {result.questions}, uni_train {__version__}",
            }
            text = yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=1000)
            yield _written(out / ".eval_results" / f"{file_name('_'.join((name, *way)))}.yaml", text)


def _every_eval_ever(done: Evaluation, name: str, out: Path, began: datetime, organization: str) -> Path:
    model, asked = _model_id(done), dict(done.asked)
    developer, _, short = model.rpartition("/")
    source, created = str(asked["model"].get("source", "")), str(time.time())
    remote = source.startswith(("http://", "https://"))
    about = _texts(asked["model"]) | {
        "deployment_type": "externally_managed" if remote else "self_deployed",
        "model_availability": "open_weights" if developer else "unknown",
    }
    document = {
        "schema_version": "0.3.0",
        "evaluation_id": f"{name}/{model}/{created}",
        "evaluation_timestamp": began.isoformat(),
        "retrieved_timestamp": created,
        "source_metadata": {
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "uni_train", "version": __version__},
        "model_info": {
            "name": asked["model"]["name"],
            "id": model,
            "developer": developer or "unknown",
            "additional_details": about,
        },
        "evaluation_results": [_result(done, *score) for score in scores_of(done, name)],
    }
    # The same evaluation exported again replaces its file.
    same = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([name, asked], sort_keys=True))
    file = out / "data" / name / file_name(developer or "unknown") / file_name(short) / f"{same}.json"
    return _written(file, json.dumps(document, indent=2))


def _result(done: Evaluation, column: Column, part: str, estimate: Estimate) -> dict[str, Any]:
    name = column.benchmark
    result, repo, which = done.results[name], _repo(done, name), column.part if part == ALL else part
    metric: dict[str, Any] = {"lower_is_better": False, "score_type": "continuous", "min_score": 0, "max_score": 1}
    judged = () if result.judge is None else result.judge["scores"]["scores"]
    if any(cell["setting"] == column.setting and part in (ALL, cell["set"]) for cell in judged):
        metric["llm_scoring"] = _judge(done, name)
    return {
        "evaluation_name": ".".join(filter(None, (name, column.setting, which, column.label))),
        "source_data": {
            "dataset_name": name,
            **({"source_type": "hf_dataset", "hf_repo": repo} if repo else {"source_type": "other"}),
            "additional_details": {"questions": result.questions, "revision": result.revision},
        },
        "metric_config": metric,
        "score_details": {
            "score": estimate.value,
            "uncertainty": {
                "confidence_interval": {"lower": estimate.low, "upper": estimate.high, **_INTERVAL},
                "num_samples": estimate.n,
            },
        },
        "generation_config": {
            "additional_details": _texts({key: done.asked.get(key) for key in ("seed", "k", "subset", "options")})
        },
    }


def _judge(done: Evaluation, name: str) -> dict[str, Any]:
    judge = done.results[name].judge or {}
    unknown = {"deployment_type": "unknown", "model_availability": "unknown"}
    model = (done.asked.get("judge") or {}).get("model", judge["name"])
    return {
        "judges": [{"model_info": {"name": judge["name"], "id": model, "additional_details": unknown}}],
        "input_prompt": f"the questions of uni_train.eval.benchmarks.{name}, asked as {judge['way']}",
        "additional_details": _texts({key: judge[key] for key in ("samples", "by", "calibration")}),
    }


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Every Eval Ever's additional details are texts."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
