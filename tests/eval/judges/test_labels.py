from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.eval.judges.criteria import Criteria
from uni_train.data_gen.reading_limits import Unreadable
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored
from uni_train.eval.judges.calibrate import anchors_from_labels, read_labels
from uni_train.models.pictures import encode_png

BENCHMARK = Criteria(4)


def written(folder: Path, text: str, name: str = "labels.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    table = written(tmp_path, 'id,rater,label,note\nc0,ann,pass,"odd, but right"\nc0,bob,0,\nc1,ann,0.25,\n')
    lines = written(
        tmp_path,
        '{"id": "c0", "rater": "ann", "label": true}\n{"id": "c0", "rater": "bob", "label": "no"}\n\n'
        '{"id": "c1", "rater": "ann", "label": 0.25, "setting": "direct", "k": 0}\n',
        "labels.jsonl",
    )
    first, second = read_labels(table, BENCHMARK), read_labels(lines, BENCHMARK)
    for found in (first, second):
        assert [one.identity for one in found] == [("c0", "direct", 0), ("c1", "direct", 0)]
        assert [[label.value for label in one.labels] for one in found] == [[1.0, 0.0], [0.25]]
    assert second[1].labels[0].where == f"{lines}, line 4"
    stored = [Scored(sample) for sample in BENCHMARK.samples()]
    anchors = anchors_from_labels(first, BENCHMARK, stored)
    assert [one.sample for one in anchors] == BENCHMARK.samples()[:2]
    assert [one.truths for one in anchors] == [{"": None}, {"": 0.25}]


def test_images_and_texts_of_the_file_itself(tmp_path: Path) -> None:
    drawn = {name: encode_png(np.full((4, 4, 3), shade, np.uint8)) for name, shade in (("a.png", 0), ("b.png", 9))}
    for name, image in drawn.items():
        (tmp_path / name).write_bytes(image)
    path = written(tmp_path, "id,label,images,text\nc0,yes,a.png;b.png,two\nc0,no,b.png,\n")
    two, one = (anchor.sample for anchor in anchors_from_labels(read_labels(path, BENCHMARK), BENCHMARK))
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
        ("id,label\nc0,1,2\n", "line 2: not as many cells"),
        ('id,label\n"c0,1\n', "no CSV"),
        ("id,label,images\nc0,1,none.png\n", r"line 2: .*none\.png: No such file"),
        ("id,label,images\nc0,1,labels.csv\n", r"line 2: .*labels\.csv: no image that can be read"),
        ("id,label\n", "holds no labels"),
        ('{"id": "c0"}', "line 1: there is no label"),
        ('{"id": "c0", "label": 1}\n[1]', "line 2: not a JSON object"),
        ('{"id": "c0", "label": 1}\n{"id": "c1", "label": {}}', "line 2: 'label' is no text or number"),
        ('{"id": "c0", "label": 1', "line 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises((UserError, Unreadable), match=problem):
        read_labels(written(tmp_path, text, "labels.jsonl" if text[0] == "{" else "labels.csv"), BENCHMARK)


def test_a_sample_that_is_nowhere_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "id,label,k\nc0,1,0\nc1,1,3\n")
    with pytest.raises(UserError, match=r"line 3: there is no sample of c1 \(direct, k=3\)"):
        anchors_from_labels(read_labels(path, BENCHMARK), BENCHMARK, [Scored(one) for one in BENCHMARK.samples()])
    words = written(tmp_path, "id,label,text\nc0,1,a cup\n")
    with pytest.raises(UserError, match=r"line 2: nothing to judge"):
        anchors_from_labels(read_labels(words, BENCHMARK), BENCHMARK)
    with pytest.raises(UserError, match=r"none\.csv"):
        read_labels(tmp_path / "none.csv", BENCHMARK)
