"""What cannot be meant ends in one screen that names it, before anything is written: a table of all commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train

CALIBRATE = "eval calibrate -b unisandbox --n 4 --sets math1 verifier=judge judge.model=http://127.0.0.1:9/v1#j"
DRAW = "generate -m nano -p 'Draw 2 cups .'"
LINKS, ATTENTION = "insight links -c shipped --task mapping", "insight attention -c shipped --task mapping --n 1"


@pytest.mark.parametrize(
    ("command", "code", "parts"),
    [
        ("fitt", 2, ["Did you mean fit?"]),
        ("fit", 2, ["--recipe"]),
        ("fit --recip x", 2, ["No such option --recip. Did you mean --recipe?"]),
        ("fit stars_curiculum", 2, ["unknown recipe", "Did you mean stars_curriculum?"]),
        ("recipes sft_mase", 2, ["unknown recipe", "Did you mean sft_maze?"]),
        ("fit stars_math model=bagel7b", 2, ["unknown model", "Did you mean bagel_7b?"]),
        ("fit stars_math seed=one", 2, ["seed must be a whole number", "override seed=one"]),
        ("fit stars_math level=4", 2, ["level must be one of 1, 2, 3"]),
        ("fit level=4 stars_math", 2, ["level must be one of 1, 2, 3"]),
        ("fit -r stars_math level=4", 2, ["level must be one of 1, 2, 3"]),
        ("fit -r stars_math stars_mixed", 2, ["cannot read the override stars_mixed"]),
        ("fit stars_math --model nano", 2, ["No such option --model. A key has no dashes: model=VALUE."]),
        ("eval", 2, ["the checkpoint is missing"]),
        ("eval compar a b", 2, ["neither a checkpoint compar nor such a command", "Did you mean compare?"]),
        ("eval shiped", 2, ["no model shiped"]),
        ("eval shipped -b unisandbx", 2, ["no benchmark unisandbx", "Did you mean unisandbox?"]),
        ("eval shipped --settings cott", 2, ["no benchmark here has a setting cott", "Did you mean cot?"]),
        ("eval shipped --settings saidd", 2, ["Did you mean said?", "normal, cot, said"]),
        ("eval shipped sets=[maths1]", 2, ["has a set maths1", "Did you mean math1?"]),
        ("eval shipped data.ureason=x", 2, ["data.ureason: ureason is not asked"]),
        ("eval shipped verifier=judge", 2, ["verifier=judge needs a judge"]),
        ("eval shipped judge.model=gpt-4o", 2, ["is no judge"]),
        ("eval shipped judge.price=2", 2, ["judge.price must be a list of 2 values"]),
        ("eval shipped subsett=2", 2, ["unknown key subsett (override subsett=2)", "Did you mean subset?"]),
        ("eval shipped --subset 0", 2, ["subset must be at least 1, not 0 (override subset=0)"]),
        ("eval questions -b ureason redraw=4", 2, ["redraw=4: eval questions asks no model", "Leave redraw out"]),
        ("eval questions -b ureason weights=nf4", 2, ["weights=nf4: eval questions asks no model"]),
        ("eval questions -b ureason compile=true", 2, ["compile=True: eval questions asks no model"]),
        ("eval questions -b ureason sampling.steps=2", 2, ["sampling={'steps': 2}: eval questions asks no model"]),
        ("eval shipped two", 2, ["'two' is no KEY=VALUE"]),
        ("eval shipped sampling.temperature=nan", 2, ["temperature must be"]),
        ("eval shipped name=a/b", 2, ["name must be usable as a folder name"]),
        ("eval shipped sampling=ufoo", 2, ["unknown sampling ufoo", "Did you mean ufo?"]),
        ("eval http://127.0.0.1:1/v1#m -b ufo sampling=ufo", 2, ["takes no temperature", "serve --sampling"]),
        ("serve -m nano --sampling ufoo", 2, ["'ufoo' is not 'ufo'"]),
        ("eval shipped logger=wandbb", 2, ["unknown logger wandbb", "Did you mean wandb?"]),
        (f"{CALIBRATE} judge=null", 2, ["verifier=judge needs a judge"]),
        (f"{CALIBRATE} --references none", 2, ["nothing to compare the judge with"]),
        (f"{CALIBRATE} --changes jpg", 2, ["--changes jpg", "Did you mean jpeg?"]),
        (f"{CALIBRATE} --ways majorty", 2, ["judge.way must be one of", "Did you mean majority?"]),
        (f"{CALIBRATE} judge.dialect=nano judge.way=binary", 2, ["judge.way=binary"]),
        (f"{CALIBRATE} --labels none.csv", 1, ["none.csv"]),
        (f"{DRAW} -p ' '", 2, ["--prompt is empty"]),
        (f"{DRAW} -p 'Draw 2 zebras .'", 1, ["zebras"]),
        (f"{DRAW} --size 23x24", 1, ["the nearest is 24 x 24"]),
        (f"{DRAW} --size 24", 2, ["cannot read the size 24"]),
        (f"{DRAW} --image no.png", 1, ["no.png: no such file"]),
        (f"{DRAW} --out cups.jpg", 2, ["cups.png"]),
        (f"{DRAW} --answer --steps 3", 2, ["--steps is about images"]),
        (f"{DRAW} --answer --think", 1, ["nano cannot think before it answers"]),
        (f"{DRAW} --interleaving chain --redraw 2", 2, ["--redraw has no meaning with --interleaving"]),
        (f"{DRAW} --interleaving chains", 2, ["'chain', 'thinkmorph', 'zebra_cot'"]),
        (f"{DRAW} --max-images 2", 2, ["Add --interleaving"]),
        ("fit sft_maze model.sampling.interleaving=chains", 2, ["Did you mean chain?"]),
        (f"{DRAW} --weights int4", 2, ["int4"]),
        (f"{DRAW} -m nanoo", 2, ["Did you mean nano?"]),
        (f"{DRAW} -m bagel_7b", 1, ["checkpoints/BAGEL-7B-MoT"]),
        ("serve -m nano --host 0.0.0.0", 2, ["add --key-env SERVE_KEY"]),
        ("serve -m nano --host ::", 2, ["lets everyone who can reach"]),
        ("serve -m nano --temperature nan", 2, ["no finite number"]),
        ("serve -m nano --timeout inf", 2, ["not in the range"]),
        ("data make --task math", 2, ['did you mean "maths"?']),
        ("data make --level 4", 2, ["mapping has no level 4"]),
        ("data make --level 1-2", 2, ["once a level"]),
        ("data make --format zip", 2, ["webdataset"]),
        ("data make --balanced", 2, ["says nothing about mapping"]),
        ("data make --task all --level 1-2", 2, ["once a level"]),
        ("data make --task all --world nan", 2, ['did you mean "nano"?']),
        ("data make --task maths --style navy", 2, ["leave style out"]),
        ("data make --task maze --style navi", 2, ['did you mean "navy"?']),
        ("data make --task maze --world nano", 2, ["leave world out"]),
        ("data make --task maze --size 1-7", 2, ["maze has no level 1"]),
        ("data make --task maze --size 7-2", 2, ["from high to low"]),
        ("data make --task maze --size 24 --pixels 100", 1, ["take a larger image"]),
        ("data make --task ureason --style classic", 2, ["says nothing about ureason"]),
        ("data make --task ureason --level 4", 2, ["ureason has no level 4"]),
        ("data show --split tests", 2, ['did you mean "test"?']),
        ("data show --split seen", 2, ["mapping has no split seen"]),
        ("data show --out sheet.gif", 2, [".png or .html"]),
        ("data audit nowhere.jsonl", 1, ["nowhere.jsonl"]),
        ("data knowledge --split tset --out x", 2, ["test"]),
        ("data verify --items x.jsonl", 2, ["Give --images and --out, or --item and --image"]),
        ("data verify --items x.jsonl --images y --out z", 1, ["x.jsonl"]),
        ("insight links -c nowhere --task mapping", 2, ["nowhere"]),
        ("insight links task=mapping", 2, ["the checkpoint is missing"]),
        ("insight links shipped level=2", 2, ["missing key task"]),
        (f"{LINKS} --level two", 2, ["level.0 must be a whole number"]),
        (f"{LINKS} layers=1-3", 2, ["insight links takes no layers"]),
        (f"{LINKS} subset=3", 2, ["unknown key subset"]),
        (f"{LINKS} --settings sad", 2, ["Did you mean said?"]),
        (f"{ATTENTION} --layers 2-9", 1, ["there are no layers 2-9"]),
        (f"{ATTENTION} --tokens 3-400", 1, ["there are no tokens 3-400"]),
        (f"{ATTENTION} layers=1,4-3", 2, ["'4-3' is not A-B or A, whole numbers from 1 on"]),
        (f"{ATTENTION} -c http://127.0.0.1:9/v1#x", 1, ["the layers of a remote model cannot be read"]),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_screen(
    command: str, code: int, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(uni_train, shlex.split(command), terminal_width=100)
    said = f"{result.output}{result.exception}"
    assert result.exit_code == code and all(part in said for part in parts), said
    assert "Traceback" not in said and len(result.output.splitlines()) <= 6, said
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".png", ".html", ".jsonl")]
