"""Whether two checkouts give equal numbers: every score, table, outcome and cause, compared to the last digit.

    python bench/same_scores.py OTHER_CHECKOUT            # three minutes a checkout; each may have its own .venv

Both run the same commands: a small STARS curriculum; `eval shipped -b all` scored by programs and then by a judge (a
local server whose verdicts hash the question); each benchmark over files in its published format, scored by that judge.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
BENCHMARKS = ("unisandbox", "ureason", "ufo", "vigor", "ueval", "wise")
OFFICIAL = "unisandbox,ureason,ufo,vigor,wise"  # UEval's needs a clone of its code
TRAINING = [
    *("fit", "stars_curriculum", "evaluation.n=4", "evaluation.sets=[math1,mapping1]"),
    *("evaluation.modes=[normal,cot]", "optimizer.warmup_updates=1"),
    "rounds=[{task: mapping, level: 1, prompts: 16, updates: 2, replay: {pretrain: 0.1}}]",
]
LEFT_OUT = {
    *("shards", "seconds", "calls", "started", "versions", "code", "command", "git", "time", "duration", "peak_memory"),
    *("judge_settings", "name", "folder", "model", "wall_seconds", "peak_rss_bytes"),
}
"""Keys of what may differ between two runs of the same code."""


class Judge(BaseHTTPRequestHandler):
    """Replies to any question with a verdict that hashes its words and images."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        draw = hashlib.sha256(json.dumps(body["messages"], sort_keys=True).encode()).digest()
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        words = json.dumps(_instance(schema, iter(draw * 20))) if schema else _words(json.dumps(body["messages"]), draw)
        self._send({"choices": [{"message": {"role": "assistant", "content": words}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}})  # fmt: skip

    def do_GET(self) -> None:
        self._send({"object": "list", "data": []})

    def _send(self, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        return


def _words(question: str, draw: bytes) -> str:
    """An answer in the form that the question asks for."""
    yes = draw[0] % 2 == 1
    if "criteria_met" in question:
        return json.dumps({"explanation": "seen", "criteria_met": yes})
    if "Visual.Quality" in question:
        highest = 100 if "Percentages" in question else 1
        keys = ("Background_Consistency", "Rule_Obey", "Visual_Quality", "Reasoning_Accuracy")
        return json.dumps({key: draw[i] % (highest + 1) for i, key in enumerate(keys)})
    forms = (
        ("<answer>", f"<answer>{'Yes' if yes else 'No'}</answer>"),
        ("Final Answer", f"Final Answer: {'YES' if yes else 'NO'}"),
        ("Score: 0", f"Score: {int(yes)}"),
        ("Score:", f"Score: {'YES' if yes else 'NO'}"),
        ("Caption:", f"Caption: {draw[0] % 6} apples"),
    )
    return next((words for hint, words in forms if hint in question), f"{draw[0] % 6} apples")


def _instance(schema: Any, draw: Iterator[int]) -> Any:
    """A value that a JSON schema allows."""
    if "anyOf" in schema:
        return _instance(schema["anyOf"][next(draw) % 8 == 7], draw)
    if "enum" in schema:
        return schema["enum"][next(draw) % len(schema["enum"])]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: _instance(part, draw) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [_instance(schema["items"], draw) for _ in range(max(schema.get("minItems", 1), 1))]
    if kind in ("integer", "number"):
        least, most = int(schema.get("minimum", 0)), int(schema.get("maximum", 1))
        return least + next(draw) % (most - least + 1)
    return bool(next(draw) % 2) if kind == "boolean" else f"{next(draw) % 6} apples"


def numbers(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every leaf of a JSON document, but of LEFT_OUT."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key not in LEFT_OUT:
                yield from numbers(value, f"{path}/{key}")
    elif isinstance(tree, list):
        yield f"{path}#", len(tree)
        for index, value in enumerate(tree):
            yield from numbers(value, f"{path}/{index}")
    else:
        yield path, tree


def measure(checkout: Path, judge: str, data: Path, out: Path) -> dict[str, Any]:
    """Path -> value of all numbers that a checkout computes."""
    command = [str(python if (python := checkout / ".venv/bin/python").exists() else sys.executable), "-m", "uni_train"]
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    by_judge = ["verifier=judge", f"judge.model={judge}#judge"]
    runs = [
        [*TRAINING, f"out={out / 'run'}"],
        ["eval", "shipped", "-b", "all", "--n", "6", f"out={out / 'programs'}"],
        ["eval", "shipped", "-b", "all", "--n", "4", f"out={out / 'judged'}", *by_judge],
        ["eval", "shipped", "-b", OFFICIAL, f"out={out / 'official'}", "--n", "3", "compat=official", *by_judge],
        *(
            ["eval", "shipped", "-b", name, f"out={out / name}", f"data.{name}={data / name}", by_judge[1]]
            for name in BENCHMARKS
        ),
    ]
    for run in runs:
        before = len([*out.rglob("scores.json")])
        ended = subprocess.run([*command, *run], cwd=out, env=environment, capture_output=True, text=True)
        if ended.returncode > 1 or len([*out.rglob("scores.json")]) == before:  # 1: sets without a score
            raise SystemExit(f"{checkout}: {' '.join(run)}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    found: dict[str, Any] = {}
    for file in sorted(out.rglob("*.json")):
        if file.name in ("scores.json", "summary.json"):
            place = "/".join(file.relative_to(out).parts[:1]) + "/" + file.name
            place = f"{place}@{'/'.join(file.relative_to(out).parts[1:-1])}" if "stages" in file.parts else place
            found.update(numbers(json.loads(file.read_text()), place))
    return found


def write_published(folder: Path) -> None:
    """Eight rows of each benchmark in its published format."""
    sys.path.insert(0, str(HERE))
    from tests.eval.benchmarks import published

    for name in BENCHMARKS:
        key = {"vigor": "image", "wise": "prompt_id"}.get(name, "id")
        rows = [published.row(name, **({} if key == "image" else {key: type(published.ROWS[name][1][key])(i)}))
                for i in range(1, 9)]  # fmt: skip
        published.write(folder / name, name, *rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="another checkout, or a JSON file that --write has written")
    parser.add_argument("--write", type=Path, help="write the numbers of OTHER to this JSON file, and stop")
    parser.add_argument("--this", type=Path, default=HERE, help="the checkout to compare with OTHER")
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    judge = f"http://127.0.0.1:{server.server_address[1]}/v1"
    sides = []
    with tempfile.TemporaryDirectory() as folder:
        write_published(Path(folder) / "data")
        for place in [options.other, *([] if options.write else [options.this])]:
            if place.is_file():
                sides.append(json.loads(place.read_text()))
                continue
            out = Path(folder) / str(len(sides))
            out.mkdir()
            sides.append(measure(place.resolve(), judge, Path(folder) / "data", out))
    if options.write:
        options.write.write_text(json.dumps(sides[0]))
        print(f"{len(sides[0]):,} values written to {options.write}")
        return
    other, this = sides
    differ = [path for path in sorted(other.keys() | this.keys()) if other.get(path) != this.get(path)]
    for path in differ[:40]:
        print(f"{path}: {other.get(path)!r} -> {this.get(path)!r}")
    print(f"{len(other):,} values, {len(differ):,} differ")
    raise SystemExit(1 if differ else 0)


if __name__ == "__main__":
    main()
