"""What an evaluation with `redraw` took, beside its scores."""

from __future__ import annotations

from uni_train.eval.evaluation import CPU, Evaluation
from uni_train.eval.redraw import counted


def costs(evaluation: Evaluation) -> list[str]:
    """What each setting that draws took, a sentence each; then the CPU seconds, if no call was stored before."""
    every = [answer.sample for name in evaluation.results for answer in evaluation.scored(name)]
    sentences, drawn = [], 0
    for setting in dict.fromkeys(sample.ask.setting for sample in every):
        n, images, judgements = counted(sample for sample in every if sample.ask.setting == setting)
        if n:
            drawn += n
            sentences.append(
                f"redraw={evaluation.asked['options']['redraw']}, {setting}: {images / n:.2f} images and "
                f"{judgements / n:.2f} judgements of its own a sample"
            )
    if drawn and CPU in evaluation.seconds and not any(tally["stored"] for tally in evaluation.calls.values()):
        sentences.append(f"{evaluation.seconds[CPU] / drawn:.3g} CPU seconds a sample")
    return sentences
