"""Labels and other samples of known truth, and judges measured on them."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.eval.judges.criteria import NO, PNG, YES, Criteria, number, odd
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import JudgeConfig
from uni_train.core.errors import UserError
from uni_train.core.reading_limits import Unreadable
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Case, JudgeAsk, Sample, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.images import ImageStore
from uni_train.eval.judges import calibrate as cal
from uni_train.eval.judges import filled_in, run
from uni_train.eval.judges.agreement import citation, comparable, find
from uni_train.eval.judges.ways import perturbed
from uni_train.eval.statistics import Estimate, proportion
from uni_train.models.pictures import encode_png

BENCHMARK = Criteria(4)
SCORED = [Scored(sample) for sample in BENCHMARK.samples()]


def written(folder: Path, text: str) -> Path:
    path = folder / ("labels.jsonl" if text[0] == "{" else "labels.csv")
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    table = written(tmp_path, 'id,rater,label,note\nc0,ann,pass,"odd, but right"\nc0,bob,0,\nc1,ann,0.25,\n')
    lines = written(
        tmp_path,
        '{"id": "c0", "rater": "ann", "label": true}\n{"id": "c0", "rater": "bob", "label": "no"}\n\n'
        '{"id": "c1", "rater": "ann", "label": 0.25, "setting": "direct", "k": 0}\n',
    )
    first, second = cal.read_labels(table, BENCHMARK), cal.read_labels(lines, BENCHMARK)
    for found in (first, second):
        assert [one.identity for one in found] == [("c0", "direct", 0), ("c1", "direct", 0)]
        assert [[label.value for label in one.labels] for one in found] == [[1.0, 0.0], [0.25]]
    assert second[1].labels[0].where == f"{lines}, line 4"
    anchors = cal.anchors_from_labels(first, BENCHMARK, SCORED)
    assert [one.sample for one in anchors] == BENCHMARK.samples()[:2]
    assert [one.truth_by_check for one in anchors] == [{"": None}, {"": 0.25}]


def test_images_and_texts_of_the_file_itself(tmp_path: Path) -> None:
    drawn = {name: encode_png(np.full((4, 4, 3), shade, np.uint8)) for name, shade in (("a.png", 0), ("b.png", 9))}
    for name, image in drawn.items():
        (tmp_path / name).write_bytes(image)
    path = written(tmp_path, "id,label,images,text\nc0,yes,a.png;b.png,two\nc0,no,b.png,\n")
    two, one = (anchor.sample for anchor in cal.anchors_from_labels(cal.read_labels(path, BENCHMARK), BENCHMARK))
    assert two.images == tuple(drawn.values()) and two.text == "two" and one.images == (drawn["b.png"],)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,rater\nc0,ann\n", "labels.csv: there is no label"),
        ("id,label,settng\nc0,1,a\n", "no column 'settng' of labels"),
        ("id,label\nc0,1\nc9,1\n", "line 3: criteria has no case 'c9'"),
        ("id,label,setting\nc0,1,cot\n", "line 2: criteria has no setting 'cot'"),
        ("id,label,k\nc0,1,-1\n", "line 2: k is -1"),
        ("id,label\nc0,maybe\n", "line 2: 'maybe' is no verdict"),
        ("id,label\nc0,nan\n", "line 2: 'nan' is no verdict"),
        ("id,label\nc0,\n", "line 2: '' is no verdict"),
        ("id,rater,label\nc0,ann,1\nc1,ann,1\nc0,ann,0\n", "line 4: ann has labelled it before, in line 2"),
        ("id,label\nc0,1\nc0,1\n", "line 3: nobody by name has labelled it before, in line 2"),
        ("id,label\nc0,1,2\n", "line 2: not as many cells"), ('id,label\n"c0,1\n', "no CSV"),
        ("id,label,images\nc0,1,none.png\n", r"line 2: .*none\.png: No such file"),
        ("id,label,images\nc0,1,labels.csv\n", r"line 2: .*labels\.csv: no image that can be read"),
        ("id,label\n", "holds no labels"), ('{"id": "c0"}', "line 1: there is no label"),
        ('{"id": "c0", "label": 1}\n[1]', "line 2: not a JSON object"),
        ('{"id": "c0", "label": 1}\n{"id": "c1", "label": {}}', "line 2: 'label' is no text or number"),
        ('{"id": "c0", "label": 1', "line 1"),
        ("id,label,k\nc0,1,0\nc1,1,3\n", r"line 3: there is no sample of c1 \(direct, k=3\)"),
        ("id,label,text\nc0,1,a cup\n", "line 2: nothing to judge"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_named_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises((UserError, Unreadable), match=problem):
        labelled = cal.read_labels(written(tmp_path, text), BENCHMARK)
        cal.anchors_from_labels(labelled, BENCHMARK, SCORED)


def test_anchors_of_nano_are_drawn_and_shuffled() -> None:
    benchmark = UniSandbox(Source(world="nano", n=4, sets=("math1", "mapping1")))
    anchors = cal.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    right = [one for one in anchors if one.right]
    assert len(right) == len(benchmark.cases()) and len(anchors) == 2 * len(right)
    for anchor in anchors:
        verdict = benchmark.check(anchor.sample)
        assert verdict is not None and verdict.status == ("pass" if anchor.right else "fail")
    assert anchors == cal.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    assert UniSandbox(Source(n=1)).reference(Case("a", "all", "Draw a portrait.")) is None  # nothing renders it


def test_references_from_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        cal.from_folder(tmp_path / "none")
    for case in ("c0", "c2"):
        (tmp_path / f"{case}.png").write_bytes(PNG + case.encode())
    benchmark = Criteria(3)
    anchors = cal.anchors_from_references(benchmark, benchmark.cases(), cal.from_folder(tmp_path))
    found = [(one.sample.ask.case.id, one.kind) for one in anchors]
    assert found == [(case, kind) for case in ("c0", "c2") for kind in ("reference", "shuffled")]
    assert anchors[1].sample.image == PNG + b"c2"


def test_a_reference_that_is_wrong_and_one_side_alone_are_refused(tmp_path: Path) -> None:
    class Checked(Criteria):
        def check(self, sample: Sample) -> Verdict | None:
            return Verdict((Check("seen", "fail", "nothing there"),))

    with pytest.raises(UserError, match="c0 is not right: nothing there"):
        cal.anchors_from_references(Checked(2), Checked(2).cases(), lambda case: PNG)
    right = [anchor for anchor in odd_ones(4) if anchor.right]
    with pytest.raises(UserError, match="known to be wrong"):
        cal.calibrate(right, BENCHMARK, JudgeConfig(model="http://127.0.0.1:9/v1#judge"), tmp_path, store=tmp_path)


def test_samples_that_programs_have_read_become_anchors() -> None:
    samples = Criteria(20).samples()
    verdicts = {True: Verdict((Check("x", "pass"),)), False: Verdict((Check("x", "fail"),))}
    scored = [Scored(sample, verdicts[i < 3]) for i, sample in enumerate(samples)]
    scored += [Scored(samples[0], Verdict((Check("x", "unreadable"),))), Scored(samples[0], verdicts[True], "judge")]
    assert len(cal.anchors_from_programs(scored)) == 20
    few = cal.anchors_from_programs(scored, n=8)
    assert len(few) == 8 and sum(one.right for one in few) == 3  # all there are, then the others


def odd_ones(n: int) -> list[cal.Anchor]:
    """Samples of which the odd ones are right."""
    return [cal.Anchor(sample, bool(i % 2), "reference") for i, sample in enumerate(Criteria(n).samples())]


@pytest.mark.slow
def test_a_judge_is_measured_and_evaluations_cite_it(tmp_path: Path) -> None:
    def lenient(asked: Asked) -> str:
        """Right but for one reference that it cannot read, and one wrong picture that it lets pass."""
        return "eyes" if number(asked) == 1 else YES if number(asked) == 2 else odd(asked)

    benchmark, store, anchors = Criteria(10), tmp_path / "store", odd_ones(10)
    with JudgeServer(lenient) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        assert find(store, judge, "criteria") is None
        found = cal.calibrate(anchors, benchmark, judge, tmp_path / "calibration", store=store)
        right, wrong = {"pass": 4, "fail": 0, "none": 1}, {"pass": 1, "fail": 4, "none": 0}
        assert found.counts["reference"] == {"right": right, "wrong": wrong}
        assert found.overall.accuracy == proportion(8, 10)
        assert found.overall.balanced_accuracy.value == pytest.approx(0.8)
        assert [one["id"] for one in found.disagreements] == ["c1", "c2"]
        assert find(store, judge, "criteria") == found
        asked = len(server.asked)
        assert cal.calibrate(anchors, benchmark, judge, tmp_path / "calibration", store=store).counts == found.counts
        assert len(server.asked) == asked
        run(benchmark.samples(), benchmark, judge, tmp_path / "evaluation", store=store)
        assert len(server.asked) == asked  # the store is shared
        record = json.loads((tmp_path / "evaluation" / "judge" / "record.json").read_text())
        (part,) = record["parts"].values()
        assert part["calibration"]["n"] == 10 and part["calibration"]["same_questions"]
        assert Estimate.from_dict(part["calibration"]["kappa"]) == found.overall.kappa
    other = replace(judge, temperature=1.0)
    assert find(store, other, "criteria") is None  # another judge is not calibrated


def votes(*values: float, check: str = "") -> tuple[cal.Label, ...]:
    return tuple(cal.Label(f"FILE, line {i}", f"person {i}", check, value) for i, value in enumerate(values))


def human(samples: list[Sample], *labels: tuple[cal.Label, ...]) -> list[cal.Anchor]:
    return [
        cal.Anchor(sample, sum(one.value for one in some) > len(some) / 2, "human", some)
        for sample, some in zip(samples, labels, strict=True)
    ]


def test_people_are_the_truth_and_the_ceiling(tmp_path: Path) -> None:
    benchmark = Criteria(6)
    said = ((1, 1, 1), (1, 1, 0), (0, 0, 0), (0, 0, 1), (1, 0), (0,))
    anchors = human(benchmark.samples(), *(votes(*some) for some in said))
    with JudgeServer(lambda asked: YES if number(asked) in (0, 1, 4) else NO) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        found = cal.calibrate(anchors, benchmark, judge, tmp_path, store=tmp_path)
    assert found.split == 1 and found.overall.accuracy == proportion(5, 5) and found.by_kind.keys() == {"human"}
    assert found.overall.mae.value == pytest.approx((0 + 1 / 3 + 0 + 1 / 3 + 0) / 5)
    # Of c1 two agree with a split pair of others (left out) and one fails; c4's two contradict each other.
    assert found.people is not None and found.people.n == 6 + 2 + 2
    assert found.people.accuracy.value == pytest.approx(6 / 10)
    assert found.stability["variance among people"].value == pytest.approx((0 + 2 / 9 + 0 + 2 / 9 + 1 / 4) / 5)
    assert find(tmp_path, judge, "criteria") == found


class Rubrics(Criteria):
    """Two graded checks a sample."""

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        said = await filled_in(ask, sample.ask.case.facts["criterion"], {"type": "object"})
        return Verdict(tuple(Check(name, "pass" if said[name] > 0.5 else "fail", "", said[name]) for name in "ab"))


def test_labels_of_single_checks_and_grades(tmp_path: Path) -> None:
    benchmark = Rubrics(3)
    labels = [
        (*votes(1, check="a"), *votes(0.2, 0.4, check="b")),
        (*votes(0, check="a"), *votes(0.9, check="b")),
        votes(1, check="a"),
    ]
    said = [{"a": 1, "b": 0.6}, {"a": 0, "b": 0.9}, {"a": 0, "b": 0}]
    with JudgeServer(lambda asked: json.dumps(said[number(asked)])) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        found = cal.calibrate(human(benchmark.samples(), *labels), benchmark, judge, tmp_path, store=tmp_path)
        assert (found.n, found.overall.accuracy.distinct) == (5, 3)
        assert found.overall.accuracy.value == pytest.approx(3 / 5)
        assert found.overall.mae.value == pytest.approx((0 + 0.3 + 0 + 0 + 1) / 5)
        assert found.by_sample is not None and found.by_sample.n == 3
        assert found.by_sample.mae.value == pytest.approx((0.15 + 0 + 1) / 3)
        labels[2] = votes(1, check="c")
        with pytest.raises(UserError, match="FILE, line 0: the judge's verdict has no check 'c'"):
            cal.calibrate(human(benchmark.samples(), *labels), benchmark, judge, tmp_path, store=tmp_path)


def test_flips_over_reruns_and_changed_images(tmp_path: Path) -> None:
    benchmark = UniSandbox(Source(world="nano", n=3, sets=("math1",), verifier="judge"))
    anchors = cal.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    asked_for = Counter[str]()

    def reply(asked: Asked) -> str:
        (image,) = asked.images
        asked_for[image] += 1
        if "jpeg" in image[:20]:
            return "Caption: unclear"
        return "Caption: 1 apple" if asked_for[image] > 1 else "Caption: 2 apples"

    with JudgeServer(reply) as server:
        judge = JudgeConfig(model=f"{server.url}#judge", dialect="nano", connections=1)
        measure = partial(cal.calibrate, store=tmp_path, reruns=1, changes=("jpeg", "resize"))
        found = measure(anchors, benchmark, judge, tmp_path)
        several = len(server.asked)
        again = measure(anchors, benchmark, judge, tmp_path)
        assert again == replace(found, made=again.made) and len(server.asked) == several
    assert set(found.stability) == {"flips over reruns", "variance over reruns", "flips over jpeg", "flips over resize"}
    assert all(0 <= (one.value or 0) <= 1 for one in found.stability.values())
    first = {kind: sum(side["pass"] for side in one.values()) for kind, one in found.counts.items()}
    assert found.stability["flips over jpeg"].value == pytest.approx(sum(first.values()) / len(anchors))


@pytest.mark.parametrize("silent", ["the first time", "a rerun", "a changed image", "the large judge"])
def test_what_nobody_answered_measures_nothing(tmp_path: Path, silent: str) -> None:
    """Neither flips nor a bias, nor is anything recorded."""
    benchmark = UniSandbox(Source(world="nano", n=2, sets=("math1",), verifier="judge"))
    anchors = cal.anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    seen = Counter[str]()

    def reply(asked: Asked) -> str:
        (image,) = asked.images
        seen[image] += 1
        quiet = {"the first time": True, "a rerun": seen[image] > 1, "a changed image": "jpeg" in image[:20]}
        return "Hm." if quiet.get(silent, asked.body["model"] == "large") else "Caption: 1 apple"

    with JudgeServer(reply) as server:
        judge = JudgeConfig(model=f"{server.url}#large", dialect="nano", connections=1)
        if silent == "the large judge":
            judge = replace(
                judge, small=(replace(judge, model=f"{server.url}#a"), replace(judge, model=f"{server.url}#b"))
            )
        with pytest.raises(
            UserError, match=r"not calibrated for unisandbox: judge unparseable 4 of 4 \('Hm.': it must"
        ):
            cal.calibrate(anchors, benchmark, judge, tmp_path, store=tmp_path, reruns=1, changes=("jpeg",))
    assert not list(tmp_path.rglob("calibrations/*.json"))


def test_changes_keep_the_size_and_what_is_shown(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 12, 3), np.uint8)
    stored = ImageStore(tmp_path).put(encode_png(pixels))
    sample = Sample(Ask(Case("a", "all", "Draw."), "direct", 0, 0), parts=(stored, "words", encode_png(pixels)))
    for change, kind in (("jpeg", "JPEG"), ("resize", "PNG")):
        found = perturbed(sample, change)
        assert found.text == "words" and found.images[0] == found.images[1] != sample.images[0]
        image = Image.open(io.BytesIO(found.images[0]))
        assert (image.format, image.size) == (kind, (12, 20)) and perturbed(sample, change) == found


def test_only_judges_of_the_same_samples_are_compared(tmp_path: Path) -> None:
    benchmark, store, anchors = Criteria(4), tmp_path / "store", odd_ones(4)
    with JudgeServer(lambda asked: YES) as server:
        judge = JudgeConfig(model=f"{server.url}#b")
        binary, other = replace(judge, way="binary"), replace(judge, model=f"{server.url}#a")
        kept = [cal.calibrate(anchors, benchmark, one, tmp_path, store=store) for one in (judge, binary, other)]
        few = cal.calibrate(anchors[:2], benchmark, replace(judge, model=f"{server.url}#c"), tmp_path, store=store)
        assert comparable(store, kept[0]) == [kept[2], kept[1], kept[0]]
        assert comparable(store, few) == [few]
        # A way is known apart: an evaluation that asks in another one is uncalibrated.
        assert citation(store, replace(judge, way="chain_of_thought"), benchmark) is None
        assert citation(store, binary, benchmark) is not None
