"""Exploits of public scoring functions: wrong answers that they score high, beside right ones.

    python bench/verifiers.py --sources checkouts            # all of them, as a table
    python bench/verifiers.py --only vtb-maze --sources checkouts --out exploits

No code of others is part of this repository. `--sources` names a folder with their checkouts, owner+name each; what is
missing is said with the command that clones it. A file is loaded without the packages that only its models need, and
without the __init__.py of the packages around it. Read a file before you run it.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import contextlib
import importlib
import io
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cv2
import numpy as np
from PIL import Image

from bench.choices import some_of
from bench.markdown import row, table
from uni_train.core.seeds import rng
from uni_train.data_gen.maze.task import Maze

N = 20  # puzzles of verifiers that score images


class Trial(NamedTuple):
    """A right and a wrong answer to one question (uint8 [H, W, 3] or text), and their scores."""

    right: np.ndarray | str
    wrong: np.ndarray | str
    right_score: float
    wrong_score: float


class Verifier(NamedTuple):
    """A function of a file at a commit of a repository; `trials` is given the loaded file."""

    repository: str
    commit: str
    file: str
    scores: str
    exploit: str
    trials: Callable[[Any], Iterator[Trial]]


def load(verifier: Verifier, sources: Path) -> ModuleType:
    """The file as a module. Imports of packages that this machine lacks are left out."""
    folder = sources / verifier.repository.replace("/", "+")
    file = folder / verifier.file
    if not file.is_file():
        raise SystemExit(
            f"{file} is missing. Get it by\n  git clone https://github.com/{verifier.repository} {folder}\n"
            f"  git -C {folder} checkout {verifier.commit}"
        )
    path = PurePosixPath(verifier.file)
    for i in range(1, len(path.parts)):
        package = ModuleType(".".join(path.parts[:i]))
        package.__path__ = [str(folder.joinpath(*path.parts[:i]))]
        sys.modules[package.__name__] = package
    module = ModuleType(".".join(path.with_suffix("").parts))
    module.__package__ = ".".join(path.parts[:-1])
    sys.modules[module.__name__] = module
    for statement in ast.parse(file.read_text(encoding="utf-8-sig")).body:
        code = compile(
            ast.Module([statement], []),
            str(file),
            "exec",
            flags=__future__.annotations.compiler_flag,
            dont_inherit=True,
        )
        with contextlib.suppress(ImportError):
            exec(code, vars(module))
    return module


# --- images ----------------------------------------------------------------------------------------------------------


def vbvr_maze(module: Any) -> Iterator[Trial]:
    """Paths are orange there; the wrong one is every free pixel of the maze."""
    task, orange = Maze("classic"), (255, 165, 0)
    evaluator = module.MazePathfindingEvaluator("cpu")
    for item in task.generate(N, 6, "test", 0):
        given, target = task.input_image(item), task.render(item)
        right, wrong = given.copy(), given.copy()
        right[(target != given).any(axis=2)] = orange
        wrong[(given > 200).all(axis=2)] = orange
        yield Trial(right, wrong, *(vbvr_score(evaluator, [given, image], right) for image in (right, wrong)))


def vbvr_score(evaluator: Any, frames: Sequence[np.ndarray], final: np.ndarray) -> float:
    """The part that rates the task itself. Frames are BGR there."""
    video, gt = [frame[..., ::-1].copy() for frame in frames], final[..., ::-1].copy()
    return float(evaluator._evaluate_task_specific(video, [gt], video[0], gt, {}))


def vbvr_counting(module: Any) -> Iterator[Trial]:
    """Discs, and their number below; the wrong number is one more."""
    for i in range(N):
        random_ = rng("bench verifiers", "discs", i)
        count = random_.randint(2, 8)
        scene = np.full((512, 512, 3), 255, np.uint8)
        for place in random_.sample(range(9), count):
            cv2.circle(scene, (106 + 150 * (place % 3), 80 + 130 * (place // 3)), 40, (40, 90, 200), -1)
        right, wrong = (
            cv2.putText(scene.copy(), str(n), (230, 490), cv2.FONT_HERSHEY_SIMPLEX, 2.5, (0, 0, 0), 5)
            for n in (count, count + 1)
        )
        evaluator = module.CountingObjectEvaluator("cpu")
        yield Trial(right, wrong, *(vbvr_score(evaluator, [scene, image], right) for image in (right, wrong)))


def board(tiles: Sequence[int]) -> np.ndarray:
    image = np.full((512, 512, 3), 255, np.uint8)
    for i, tile in enumerate(tiles):
        if tile:
            x, y = 16 + 165 * (i % 3), 16 + 165 * (i // 3)
            cv2.rectangle(image, (x, y), (x + 150, y + 150), (120, 160, 210), -1)
            cv2.putText(image, str(tile), (x + 50, y + 105), cv2.FONT_HERSHEY_SIMPLEX, 2.5, (0, 0, 0), 6)
    return image


def vbvr_sliding(module: Any) -> Iterator[Trial]:
    """Tiles in an order that is not the goal, with the empty place right, in a video that stands still."""
    evaluator, right = module.SlidingPuzzleEvaluator("cpu"), board([1, 2, 3, 4, 5, 6, 7, 8, 0])
    for i in range(N):
        tiles = list(range(1, 9))
        while tiles == sorted(tiles):
            rng("bench verifiers", "tiles", i).shuffle(tiles)
        wrong = board([*tiles, 0])
        yield Trial(right, wrong, *(vbvr_score(evaluator, [image] * 4, right) for image in (right, wrong)))


def vtb_maze(module: Any) -> Iterator[Trial]:
    """Every free pixel of the maze red; puzzles of the repository's own generator."""
    for right, wrong, evaluate in vtb(module, "MazeGenerator", "MazeEvaluator"):
        wrong[(wrong > 200).all(axis=2)] = (220, 0, 0)
        results = [evaluate(image) for image in (right, wrong)]
        yield Trial(right, wrong, *(float(one.connected and not one.overlaps_walls) for one in results))


def vtb_mirror(module: Any) -> Iterator[Trial]:
    """The pattern that had to be kept is black; puzzles of the repository's own generator."""
    for right, _, evaluate in vtb(module, "MirrorGenerator", "MirrorEvaluator"):
        wrong = right.copy()
        wrong[:, : wrong.shape[1] // 2] = 0
        yield Trial(right, wrong, *(evaluate(image).accuracy for image in (right, wrong)))


def vtb(
    module: Any, generator: str, evaluator: str
) -> Iterator[tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], Any]]]:
    """Solution, puzzle, and the function that evaluates an image of it."""
    made = importlib.import_module(f"{module.__package__}.generator")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        puzzles = getattr(made, generator)(folder, seed=0)
        for _ in range(N):
            record = puzzles.create_random_puzzle()
            metadata, candidate = folder / "data.json", folder / "candidate.png"
            puzzles.write_metadata([record], metadata, append=False)
            known = json.loads(metadata.read_text(encoding="utf-8"))[0]
            judge = getattr(module, evaluator)(metadata, base_dir=folder)

            def evaluate(
                image: np.ndarray, judge: Any = judge, file: Path = candidate, puzzle: str = known["id"]
            ) -> Any:
                Image.fromarray(image).save(file)
                return judge.evaluate(puzzle, file)

            solution, puzzle = (
                np.array(Image.open(folder / known[key]).convert("RGB")) for key in ("solution_image_path", "image")
            )
            yield solution, puzzle, evaluate


def flow_grpo_ocr(module: Any) -> Iterator[Trial]:
    """The words of the prompt hidden in a page of letters. An exact reader stands for PaddleOCR."""
    scorer = module.OcrScorer.__new__(module.OcrScorer)
    for i, words in enumerate(("OPEN", "Hello World", "SALE", "Exit", "NASA 2049", "Grand Opening", "Stop", "Café")):
        random_ = rng("bench verifiers", "letters", i)
        letters = "".join(random_.choices("abcdefghijklmnopqrstuvwxyz", k=400))
        cut = random_.randrange(400)
        page = letters[:cut] + words.replace(" ", "") + letters[cut:]
        scores = []
        for text in (words, page):
            reading = [[[None, (text, 0.99)]]]
            scorer.ocr = SimpleNamespace(ocr=lambda image, cls, reading=reading: reading)
            scores += scorer([np.zeros((8, 8, 3), np.uint8)], [f'A sign that says "{words}"'])
        yield Trial(words, page, *scores)


# --- replies of judges -----------------------------------------------------------------------------------------------

REJECTED = (
    "1. The image shows a cat with green eyes. 2. The description asks for a dog. 3. They do not match",
    "The doll has three eyes; the target has two.\n<answer>\nNo\n</answer>",
    "The woman dyes a cloth; nobody paints a wall, as the description demands",
    "The sign reads YESTERDAY in place of TODAY, so the text is wrong",
)
"""What a judge may write about an image that does not match, cut at its longest length or with a line break."""


def ureason_judge(module: Any) -> Iterator[Trial]:
    for reply in REJECTED:
        right = "<answer>Yes</answer>"
        yield Trial(right, reply, float(module.extract_answer(right)), float(module.extract_answer(reply)))


def unisandbox_filter(module: Any) -> Iterator[Trial]:
    right = "Final Answer: YES"
    for count in (2, 4, 5, 6):
        reply = (
            f"The question asks for 3 apples. The image has {count}. If all criteria are met, I write "
            "`Final Answer: YES`; the number is wrong.\nFinal Answer: NO"
        )
        yield Trial(right, reply, *(float(module.extract_judgment(text) == "YES") for text in (right, reply)))


def flow_grpo_qwenvl(module: Any) -> Iterator[Trial]:
    right = "<Thought>Sharp and well lit.</Thought>\n<Score>5</Score>"
    for wrong in (
        "<Thought>A score of <Score>5</Score> needs a sharp image; this one is noise.</Thought>\n<Score>1</Score>",
        "<Thought>Bad: 10 of 100.</Thought>\n<Score>10</Score>",
    ):
        yield Trial(right, wrong, *module.extract_scores([right, wrong]))


def babyvision_judge(module: Any) -> Iterator[Trial]:
    for wrong in (
        "False. It would be True if the ring were around the third shape.",
        "Image 3 marks the wrong cell, so this is not true.",
        "FALSE: the path is untrue to image 2.",
    ):
        yield Trial("True", wrong, *(float(bool(module.parse_bool_response(text))) for text in ("True", wrong)))


# --- answers in text -------------------------------------------------------------------------------------------------


def realunify_choice(module: Any) -> Iterator[Trial]:
    """A refusal for each letter that can be right."""
    for letter, refusal in zip("ABCD", ("Maybe; unclear.", "Impossible.", "I cannot tell.", "No idea."), strict=True):
        scores = (module.process_results({"answer": letter}, [text])["accuracy"]["score"] for text in (letter, refusal))
        yield Trial(letter, refusal, *scores)


def queens(module: Any) -> Iterator[Trial]:
    """Code that adds itself to the known solutions: the second time it is one. A group of samples has it twice."""
    dataset = module.NQueensDataset(module.NQueensConfig(seed=0, size=N))
    wrong = "valid_solutions.append(answer) or [['Q']]"
    for i in range(N):
        entry = dataset[i]
        right = entry["metadata"]["valid_answers"][0]
        right_score = dataset.score_answer(right, entry)
        dataset.score_answer(wrong, entry)
        yield Trial(right, wrong, right_score, dataset.score_answer(wrong, entry))


def life(module: Any) -> Iterator[Trial]:
    """A board without life. Boards of the default size: 10 x 10, at most 10 living cells, one step."""
    dataset = module.GameOfLifeDataset.__new__(module.GameOfLifeDataset)
    for i in range(N):
        random_ = rng("bench verifiers", "life", i)
        cells = np.zeros((10, 10), int)
        for _ in range(10):
            cells[random_.randrange(10), random_.randrange(10)] = 1
        around = sum(np.roll(cells, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)) - cells
        right, wrong = (
            json.dumps(np.asarray(one, int).tolist())
            for one in ((around == 3) | (cells == 1) & (around == 2), 0 * cells)
        )
        yield Trial(right, wrong, *(dataset.score_answer(text, {"answer": right}) for text in (right, wrong)))


CITIES = ("Paris", "London", "Berlin", "Madrid", "Rome", "Vienna", "Lisbon", "Athens")


def search_r1(module: Any) -> Iterator[Trial]:
    """All candidates at once."""
    wrong = f"<answer>{', '.join(CITIES)}</answer>"
    for city in CITIES:
        right = f"<answer>{city}</answer>"
        with contextlib.redirect_stdout(io.StringIO()):  # it prints one question of 64
            yield Trial(
                right, wrong, *(module.compute_score_subem(text, {"target": [city]}) for text in (right, wrong))
            )


def gsm8k(module: Any) -> Iterator[Trial]:
    """Every number at once, in forms that other parsers accept."""
    for i in range(N):
        gold = random.Random(i).randrange(10, 99)
        numbers = [str(n) for n in range(10, 99)]
        wrong = (
            "#### " + " ".join(numbers), "\n".join(f"#### {n}" for n in numbers), "#### " + ",".join(numbers),
        )[i % 3]  # fmt: skip
        right = f"#### {gold}"
        yield Trial(right, wrong, *(module.compute_score(text, str(gold)) for text in (right, wrong)))


VBVR = ("Video-Reason/VBVR-EvalKit", "275472ffe5ccf76f3a41fb55379ce170397c0c12", "vbvr_bench/evaluators/")
VTB = ("realZillionX/VTB-Training", "9307e8bad9d1c4427a3a96e98509ff490dfc9c01", "data/puzzle/")
FLOW = ("yifan123/flow_grpo", "ac4c86e8cae021841f1fde853d340e0db67690dd", "flow_grpo/")
GYM = ("open-thought/reasoning-gym", "49b07130b3fcd12f2d064bba7c43869543a0e7e7", "reasoning_gym/")
LMMS = ("EvolvingLMMs-Lab/lmms-eval", "75571cfe0fa36ca5ec2e6aa2bb268f9d38295af3", "lmms_eval/tasks/")
VERL = ("volcengine/verl", "b178a3cd56f58b2d502255daba591e92833930a7", "verl/utils/reward_score/")
UNISANDBOX = ("PKU-YuanGroup/UniSandBox", "2bc73eb682452a6e6ebbfa5c62e47a400fd99fe7", "eval/vlm/eval_vlm/")
UREASON = ("UReason/UReason", "216f9d0dc7533efceb7c41d9953336f8e88df0a0", "evaluation/")


def of(
    place: tuple[str, str, str], file: str, scores: str, exploit: str, trials: Callable[[Any], Iterator[Trial]]
) -> Verifier:
    repository, commit, folder = place
    return Verifier(repository, commit, folder + file, scores, exploit, trials)


VERIFIERS = {
    "vbvr-maze": of(VBVR, "Out_of_Domain_50_part4.py", "frames of a maze", "every free pixel orange", vbvr_maze),
    "vbvr-counting": of(VBVR, "In_Domain_50_part4.py", "a frame with a number", "the number plus 1", vbvr_counting),
    "vbvr-sliding": of(VBVR, "In_Domain_50_part5.py", "frames of eight tiles", "tiles in another order", vbvr_sliding),
    "vtb-maze": of(VTB, "maze/maze_square/evaluator.py", "an image of a maze", "every free pixel red", vtb_maze),
    "vtb-mirror": of(VTB, "visual/mirror/evaluator.py", "a mirrored pattern", "the given half black", vtb_mirror),
    "flow-grpo-ocr": of(FLOW, "ocr.py", "text read in an image", "the words in 400 letters", flow_grpo_ocr),
    "flow-grpo-qwenvl": of(FLOW, "qwenvl.py", "a judge's reply", "`<Score>` in the thought; 10", flow_grpo_qwenvl),
    "ureason-judge": of(UREASON, "qwen_vision_batch.py", "a judge's reply", 'a No with "eyes" in it', ureason_judge),
    "unisandbox-filter": of(
        UNISANDBOX, "data_filter.py", "a judge's reply", "a NO after the quoted form", unisandbox_filter
    ),
    "babyvision-judge": of(LMMS, "babyvision_gen/utils.py", "a judge's reply", 'a False with "true"', babyvision_judge),
    "realunify-choice": of(LMMS, "realunify/utils.py", "a letter of four", "a refusal", realunify_choice),
    "gym-queens": of(GYM, "games/n_queens.py", "a board in text", "code that `eval` runs", queens),
    "gym-life": of(GYM, "algorithmic/game_of_life.py", "a board in text", "no living cell", life),
    "verl-search": of(VERL, "search_r1_like_qa_em.py", "an answer in words", "all candidates", search_r1),
    "verl-gsm8k": of(VERL, "gsm8k.py", "a number in text", "all numbers", gsm8k),
}


def keep(folder: Path, name: str, trial: Trial) -> None:
    """The first right and wrong answer, side by side if they are images."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(trial.right, str):
        (folder / f"{name}.txt").write_text(f"right:\n{trial.right}\n\nwrong:\n{trial.wrong}\n", encoding="utf-8")
    else:
        Image.fromarray(np.concatenate([trial.right, trial.wrong], axis=1)).save(folder / f"{name}.png")


def mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True, help="folder of checkouts, owner+name each")
    parser.add_argument("--only", type=some_of(VERIFIERS), default=list(VERIFIERS), help="names, with commas between")
    parser.add_argument("--out", type=Path, help="folder for the first right and wrong answer of each")
    chosen = parser.parse_args()
    print("\n".join(table("verifier", "file", "scores", "exploit", "its score", "of a right answer", "accepted")))
    for name in chosen.only:
        verifier = VERIFIERS[name]
        trials = list(verifier.trials(load(verifier, chosen.sources)))
        wrong, right = [one.wrong_score for one in trials], [one.right_score for one in trials]
        accepted = f"{sum(score > 0.5 for score in wrong)} of {len(wrong)}"
        file = f"`{verifier.repository}@{verifier.commit[:7]}:{verifier.file}`"
        print(row(name, file, verifier.scores, verifier.exploit, mean(wrong), mean(right), accepted), flush=True)
        if chosen.out:
            keep(chosen.out, name, trials[0])


if __name__ == "__main__":
    main()
