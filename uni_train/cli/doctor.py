"""`uni_train doctor`: check a checkpoint for common defects, or what an endpoint can do."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from uni_train.cli.commands import completer
from uni_train.cli.evaluation.options import Words, config_of
from uni_train.console.terminal import echo
from uni_train.core.errors import UsageError, UserError


@click.command()
@click.argument("model", metavar="PATH|NAME|URL#MODEL", shell_complete=completer("models"))
@click.argument("words", cls=Words, nargs=-1, metavar="[remote.KEY=VALUE]...")
@click.option(
    "--against", metavar="PATH|NAME", shell_complete=completer("models"),
    help="Compare an endpoint's images and a text with those of this checkpoint.",
)  # fmt: skip
@click.option("--image", type=click.Path(dir_okay=False, path_type=Path), help="Write the probe image there, as PNG.")
def doctor(model: str, words: tuple[str, ...], against: str | None, image: Path | None) -> None:
    """Check a checkpoint for common defects before a long run, or an endpoint for what it can do.

    It checks layout, dtypes, averages, adapters that do nothing, memory, NaN by layer, tokenizer and markers. It also
    computes the first losses, one thought and one image. The exit code is 1 if something is wrong.

    An endpoint gets about a dozen small requests; a parameter that it refuses costs one more. They show whether it
    lists models, writes, reads images, draws, edits, and obeys seeds and prompts, and by which dialects. It also prints
    the command that evaluates it.

    \b
    Examples:
      uni_train doctor nano
      uni_train doctor checkpoints/BAGEL-7B-MoT --image probe.png
      uni_train doctor http://127.0.0.1:8000/v1#qwen remote.key_env=QWEN_KEY
      uni_train doctor http://127.0.0.1:8000/v1#bagel --against checkpoints/BAGEL-7B-MoT
    """
    from uni_train.models.checkpoint import expect_there, source_of

    remote = source_of(model).kind == "endpoint"
    if words and not (remote and all(word.startswith("remote.") for word in words)):
        raise UsageError(f"doctor takes no {words[0]!r:.80}", "Keys are those of an endpoint: remote.KEY=VALUE.")
    if against is not None and not remote:
        raise UsageError("--against is for an endpoint", "Name it as URL#MODEL, and the checkpoint behind --against.")
    local = against if remote else model
    if local is not None:
        expect_there(local)  # before torch is imported, which takes seconds
    if image is not None and not image.parent.is_dir():
        raise UserError(f"{image.parent} is no folder", "Give --image a file in a folder that is there.")
    from uni_train.models.doctor import examine
    from uni_train.models.endpoint_doctor import EndpointExamination, examine_endpoint

    if remote:
        echo(f"{model}: about a dozen small requests, and one more for each parameter that it refuses")
    examination = examine_endpoint(model, config_of(words).remote, against) if remote else examine(model)
    for finding in examination.findings:
        echo(f"  {finding.verdict:<6}{finding.check:<19}{finding.detail}")
    if isinstance(examination, EndpointExamination) and examination.skills:
        from uni_train.eval.abilities import suited_benchmarks

        lines, suited = suited_benchmarks(model, config_of(["n=1", *examination.keys]), examination.skills)
        for line in lines:
            echo(line)
        keys = [*words, *(key for key in examination.keys if key not in words)]
        command = ["python", "-m", "uni_train", "eval", model, "-b", ",".join(suited), "--subset", "50", *keys]
        if suited:
            echo(f"evaluate it: {shlex.join(command)}")
    if image is not None and examination.image is not None:
        from uni_train.core.files import atomic_path
        from uni_train.models.pictures import encode_png

        with atomic_path(image) as temporary:
            Path(temporary).write_bytes(encode_png(examination.image))
    wrong = [finding.check for finding in examination.findings if finding.verdict == "wrong"]
    echo(f"{model}: {'wrong: ' + ', '.join(wrong) if wrong else 'nothing wrong was found'}")
    if wrong:
        raise SystemExit(1)
