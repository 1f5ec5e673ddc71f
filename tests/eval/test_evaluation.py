from __future__ import annotations

import base64
import html
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from tests.eval.judges.server import JudgeServer
from tests.models.test_remote import Reply, endpoint, models, refused
from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.core.addresses import held_port
from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Sample, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.evaluation import ASKED, SCORED, SCORES, Evaluation, EvaluationPlan, called, load, run
from uni_train.eval.judges import with_served_revision
from uni_train.eval.report.evaluation import report_of
from uni_train.eval.store import LastSeen
from uni_train.models.identity import ModelIdentity
from uni_train.models.nano.family import ASSETS
from uni_train.models.pictures import decode_png, encode_png

SETS = ("math1", "mapping1")


def plan(out: Path, **changes: Any) -> EvaluationPlan:
    asked: dict[str, Any] = {"checkpoint": "shipped", "benchmarks": [UniSandbox(Source(n=2, sets=SETS))]}
    asked |= {name: changes.pop(name) for name in ("checkpoint", "benchmarks", "command") if name in changes}
    return EvaluationPlan(**asked, config=EvalConfig(out=str(out), **changes))


class Unreadable(UniSandbox):
    """Pictures of the set math1 that no program can check."""

    def check(self, sample: Sample) -> Any:
        return None if sample.ask.case.set == "math1" else super().check(sample)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """One that has been run; read-only."""
    return run(plan(tmp_path_factory.mktemp("evals")))


@pytest.fixture
def out(finished: Evaluation, tmp_path: Path) -> Path:
    """A copy of its folder of evaluations."""
    return Path(shutil.copytree(finished.folder.parent, tmp_path / "evals"))


def test_every_sample_is_counted_and_kept_with_its_picture(finished: Evaluation) -> None:
    result, settings = finished.results["unisandbox"], ("normal", "cot")
    counted = {s: {name: sum(one.values()) for name, one in sets.items()} for s, sets in result.outcomes.items()}
    assert counted == {setting: {"math1": 2, "mapping1": 4} for setting in settings}
    scored = list(finished.scored("unisandbox"))
    assert len(scored) == result.n == 2 * (2 + 4)
    passed = {s: sum(one.passed for one in scored if one.sample.ask.setting == s) for s in settings}
    assert passed == {s: sum(one.get("pass", 0) for one in result.outcomes[s].values()) for s in settings}
    assert passed["cot"] > passed["normal"]  # the shipped nano reasons, and has not internalised it
    for one in scored:
        assert one.sample.image is not None and decode_png(one.sample.image).shape == (24, 24, 3)
        assert (one.sample.thought is not None) == (one.sample.ask.setting == "cot")
        assert bool(one.cause) != one.passed
    assert list(finished.scored("unisandbox")) == scored and not list(finished.folder.rglob("*.png"))
    assert all(path.stat().st_size < 40_000 for path in (finished.folder / SCORED).iterdir())


def test_the_same_again_asks_nothing_and_more_only_what_is_new(finished: Evaluation, out: Path) -> None:
    folder = out / finished.folder.name
    before = {path.name: path.read_bytes() for path in (folder / SCORED).iterdir()}
    first, again = load(folder), run(plan(out))
    assert again.folder == folder
    assert {skill: calls["made"] for skill, calls in again.calls.items()} == {"think": 0, "draw": 0, "answer": 0}
    assert (again.results, load(folder)) == (first.results, again)
    assert {path.name: path.read_bytes() for path in (folder / SCORED).iterdir()} == before
    wider = run(plan(out, k=2))
    assert wider.calls["draw"]["stored"] == wider.calls["draw"]["made"] == 12
    half = run(plan(out, settings=("cot",), subset=3))
    assert half.calls["draw"]["made"] == 0 and half.results["unisandbox"].settings == ("cot",)
    assert len({wider.folder, half.folder, folder}) == 3


def test_a_folder_keeps_to_what_it_was_asked(out: Path) -> None:
    run(plan(out, name="mine"))
    with pytest.raises(UserError, match=r"mine holds another evaluation: .*k was 1, now 2"):
        run(plan(out, name="mine", k=2))
    mine = run(plan(out, name="mine", command=["typed", "otherwise"]))
    with FileLock(mine.folder / ".lock"), pytest.raises(UserError, match="another process works on"):
        run(plan(out, name="mine"))


def test_a_checkpoint_overwritten_under_its_name_is_another_model(out: Path, tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(ASSETS, tmp_path / "checkpoint"))
    copied = run(plan(out, checkpoint=str(checkpoint)))
    assert copied.calls["draw"]["made"] == 0  # the same content elsewhere is the same model

    weights = checkpoint / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 0x01  # a bit of the last number
    weights.write_bytes(data)
    overwritten = run(plan(out, checkpoint=str(checkpoint)))
    assert overwritten.calls["draw"]["stored"] == 0 and overwritten.folder != copied.folder


def test_what_nobody_can_judge_or_a_judge_fails_for_has_no_score_and_says_so(tmp_path: Path) -> None:
    benchmark = Unreadable(Source(n=4, sets=SETS, world="nano"))
    why = "judge unparseable 4 of 4 ('I would rather not say.': it must give \"Caption: ...\" as the last line)"
    asking: dict[str, Any] = {"benchmarks": [benchmark], "settings": ("cot",)}
    without = run(plan(tmp_path, **asking)).results["unisandbox"]
    assert without.outcomes["cot"]["math1"] == {"unjudged": 4} and without.unjudged == (("cot", "math1"),)
    with JudgeServer(lambda asked: "I would rather not say.") as server:
        judge = JudgeConfig(model=f"{server.url}#judge", dialect="paper", retries=0, revision="r", attempts=1)
        evaluation = run(plan(tmp_path, **asking, judge=judge))
    result = evaluation.results["unisandbox"]
    assert result.not_scored == (("cot", "math1", why),) and result.n == 12
    assert sum(result.outcomes["cot"]["math1"].values()) == 4  # counted under what became of them
    for one in (without, result):
        assert "math1" not in one.scores["cot"] and one.scores["cot"]["mapping1"]["n"] == 4
    assert load(evaluation.folder).results == evaluation.results
    page = report_of(evaluation).read_text(encoding="utf-8")
    assert result.judge is not None
    (cell,) = result.judge["scores"]["scores"]
    assert cell["raw"]["value"] is cell["corrected"] is None and cell["failed"] == why
    (shown,) = [table.rows for table in result.tables if table.title.startswith("Passed by the judge")]
    assert shown == (("cot", "math1", why, "uncalibrated"),)
    assert why in html.unescape(page)
    assert "math1, cot" not in page and "mapping1, cot" in page  # no dot in the chart either


def test_requests_that_nano_cannot_read_are_counted_and_not_fatal(tmp_path: Path) -> None:
    """Everyday words: each request fails alone, with the tokenizer's own message."""
    benchmark = UniSandbox(Source(world="everyday", n=3, sets=("math1",)))
    evaluation = run(plan(tmp_path, benchmarks=[benchmark], settings=("normal",)))
    result = evaluation.results["unisandbox"]
    assert result.outcomes == {"normal": {"math1": {"generation_failed": 3}}}
    ((setting, name, why),) = result.not_scored  # a model that never draws has no score
    assert (setting, name) == ("normal", "math1") and result.tables == () and result.scores["normal"] == {}
    assert why.startswith("the model failed 3 of 3 (no image: nano does not know the word")
    assert all("does not know the word" in one.sample.note for one in evaluation.scored("unisandbox"))
    again = run(plan(tmp_path, benchmarks=[benchmark], settings=("normal",)))
    assert again.calls["draw"] == {"made": 0, "stored": 3, "failed": 0}
    retried = run(plan(tmp_path, benchmarks=[benchmark], settings=("normal",), retry_failed=True))
    assert retried.calls["draw"] == {"made": 3, "stored": 0, "failed": 3}


@pytest.mark.parametrize("listed", [True, False])
def test_what_needs_a_skill_that_the_model_lacks_is_a_row_and_not_an_error(tmp_path: Path, listed: bool) -> None:
    """An endpoint that draws one pixel and has no chat: Normal is scored, CoT is not; halves of a setting share the
    batch."""
    dot = base64.b64encode(encode_png(np.zeros((1, 1, 3), np.uint8))).decode()

    def reply(path: str, body: bytes) -> Reply:
        if path.endswith("/models") and listed:
            return models(path, body)
        return (200, {"data": [{"b64_json": dot}]}) if "images" in path else refused(404, "Not Found")

    benchmark = UniSandbox(Source(n=3, sets=SETS))
    with endpoint(reply) as one:
        asking = plan(tmp_path, checkpoint=f"{one.url}#painter", benchmarks=[benchmark])
        evaluation, asked = run(asking), len(one.asked)
        again = run(asking)
        assert [path for path, *_ in one.asked[asked:]].count("/v1/images/generations") == 0
    result, why = evaluation.results["unisandbox"], "painter cannot be asked by chat/completions: Not Found"
    assert result.no_skill == (("cot", "mapping1", why), ("cot", "math1", why)) and not result.not_scored
    assert result.outcomes["cot"] == {"math1": {"no_skill": 3}, "mapping1": {"no_skill": 6}}
    assert result.scores["normal"]["math1"]["n"] == 3 and "math1" not in result.scores["cot"]
    assert result.tables[0].rows == (("cot", "math1, mapping1", f"no such skill: {why}"),)
    assert again.results == evaluation.results == load(evaluation.folder).results
    assert why in report_of(evaluation).read_text(encoding="utf-8")


def test_damage_is_named(finished: Evaluation, out: Path) -> None:
    folder = out / finished.folder.name
    shard = next(iter((folder / SCORED).iterdir()))
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(UserError, match=shard.name):
        list(load(folder).scored("unisandbox"))
    (folder / SCORES).write_text("{")
    with pytest.raises(UserError, match=r"scores\.json is damaged"):
        load(folder)
    (folder / SCORES).unlink()
    with pytest.raises(UserError, match="is not finished"):
        load(folder)
    assert run(plan(out)).calls["draw"]["made"] == 0
    assert len(list(load(folder).scored("unisandbox"))) == 12
    (folder / ASKED).unlink()
    with pytest.raises(UserError, match="is no evaluation"):
        load(folder)


def test_what_cannot_be_meant_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    for changes, message in (
        ({"benchmarks": []}, "needs benchmarks"),
        ({"benchmarks": [UniSandbox(Source(n=2))] * 2}, "each once"),
        ({"checkpoint": str(tmp_path / "nothing")}, "nothing"),
        ({"sampling": {"stepz": 3}}, "unknown key stepz"),
        ({"settings": ("direct",)}, "no setting direct"),
    ):
        with pytest.raises(UserError, match=message):
            run(plan(tmp_path, **changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "source", "name"),
    [("recipe: stars_curriculum", "stages/12-finetune-mapping3/model", "stars_curriculum, after mapping3"),
     ("recipe: nft", "stages/03-train/model", "nft, after train"),
     ("", "stages/12-finetune-mapping3/model", "m"), ("recipe: nft", "checkpoints/m", "m"), (": {", "a/b/c", "m")],
)  # fmt: skip
def test_a_model_is_called_by_its_recipe_and_stage(config: str, source: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(config)
    assert called(ModelIdentity("m", str(tmp_path / source), "")) == name


def judging(verdict: str, **at: Any) -> JudgeServer:
    return JudgeServer(lambda asked: "Caption: 1 apple" if asked.images else f"Score: {verdict}", **at)


@pytest.mark.slow
def test_another_judge_judges_again_and_nothing_is_drawn_again(tmp_path: Path) -> None:
    judged = UniSandbox(Source(n=3, sets=("math1",), verifier="judge"))
    with judging("YES") as kind, judging("NO") as strict:
        first = plan(tmp_path, benchmarks=[judged], settings=("normal",), judge=JudgeConfig(model=f"{kind.url}#kind"))
        one = run(first)
        asked = len(kind.asked)
        other = run(replace(first, config=replace(first.config, judge=JudgeConfig(model=f"{strict.url}#strict"))))
        again = run(first)
    assert asked > 0 and len(kind.asked) == asked  # what was judged is not judged again
    assert other.calls["draw"]["made"] == again.calls["draw"]["made"] == 0
    assert one.folder == again.folder != other.folder
    assert (one.results, again.calls["draw"]["stored"]) == (again.results, 3)
    outcomes = [evaluation.results["unisandbox"].outcomes["normal"]["math1"] for evaluation in (one, other)]
    assert outcomes == [{"pass": 3}, {"fail": 3}]
    about = one.results["unisandbox"].judge or {}
    assert about.pop("scores")["refused"] == "uncalibrated"
    assert about == {"name": "kind", "way": "published", "samples": 3, "by": {"kind": 3}, "calibration": None}
    assert one.results["unisandbox"].tables[-1].title == "Passed by the judge kind, published"
    assert {(sample.by, "Score: NO" in sample.replies) for sample in other.scored("unisandbox")} == {("strict", True)}


@pytest.mark.slow
def test_an_evaluations_folder_is_the_same_whether_its_judge_is_up_or_down(tmp_path: Path) -> None:
    seen, checkpoint = LastSeen(tmp_path / "store"), "abcdef01"

    def judged(url: str) -> Evaluation:
        judge = with_served_revision(JudgeConfig(model=f"{url}#vlm", retries=0), seen)
        return run(plan(tmp_path, benchmarks=[Unreadable(Source(n=2, sets=("math1",)))], judge=judge))

    about = [{"id": "vlm", "uni_train": {"content": checkpoint}}]
    with held_port() as port:
        url = f"http://127.0.0.1:{port}/v1"
        down = judged(url)  # before it was ever seen
        with judging("YES", models=about, port=port):
            up = judged(url)
        gone = judged(url)
        assert down.folder == up.folder == gone.folder
        outcomes = [one.results["unisandbox"].outcomes["normal"]["math1"] for one in (down, up, gone)]
        assert [one.get("judge_failed", 0) for one in outcomes] == [2, 0, 0] and gone.results == up.results
        about[0]["uni_train"] = {"content": "/models/fedcba10"}
        with judging("YES", models=about, port=port):
            other = judged(url)
        assert other.folder.name.startswith(f"{up.folder.name}-")
        assert load(up.folder).asked["judge"]["revision"] == checkpoint
        assert judged(url).folder == other.folder
