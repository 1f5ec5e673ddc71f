"""The page of a trained model on a hub: what it is, how it was trained, what was measured, under which licence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from uni_train import __version__
from uni_train.core.reading_limits import read_yaml
from uni_train.eval import summary


def model_card(title: str, what: str, run: Path | None, licence: str | None) -> str:
    """Markdown with the hub's header.

    Args:
        title: of the page. what: the model, in words.
        run: the folder of the run that trained it; its config.yaml and summary.json are told. None: nothing is known.
        licence: as the hub names it ("apache-2.0"); None: that of what it was trained from.

    Raises:
        UserError: a damaged summary.json. Unreadable: a damaged config.yaml.
    """
    header = ["---", "tags: [uni_train]", *([f"license: {licence}"] if licence else []), "---"]
    lines = [*header, f"# {title}", "", f"{what[:1].upper()}{what[1:]}, exported by uni_train {__version__}."]
    if run is not None:
        config = read_yaml(run / "config.yaml")
        lines += ["", *_training(config), "", *_figures(run)]
    terms = licence or "that of the model it was trained from; see that model's page"
    lines += ["", "## Licence", "", f"{terms}."]
    return "\n".join(lines) + "\n"


def _training(config: Mapping[str, Any]) -> Iterator[str]:
    import yaml

    model = config["model"]
    yield from ("## Training", "", f"Recipe `{config['recipe']}`, seed {config['seed']}, from {model['name']}")
    yield from (f"(`{model['checkpoint']}`). All keys, data included:", "", "```yaml")
    yield from (yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True).rstrip(), "```")


def _figures(run: Path) -> Iterator[str]:
    yield from ("## Figures", "")
    if not (run / "summary.json").is_file():
        yield "The run has evaluated nothing."
        return
    stored = summary.read(run)
    scores, questions = stored.get("scores") or {}, str(stored.get("questions", ""))
    yield from (
        "Share that is right, with n and a 95 % interval" + (f": {questions}." if questions else "."),
        "",
        "| set | mode | before | after |",
        "|---|---|---|---|",
    )
    modes = scores.get("after") or {}
    for mode, by_set in modes.items():
        for name, after in by_set.items():
            before = scores.get("before", {}).get(mode, {}).get(name)
            yield f"| {name} | {mode} | {_cell(before)} | {_cell(after)} |"


def _cell(estimate: Mapping[str, Any] | None) -> str:
    if estimate is None or estimate.get("value") is None:
        return ""
    return f"{estimate['value']:z.2f} [{estimate['low']:z.2f}, {estimate['high']:z.2f}], n {estimate['n']}"
