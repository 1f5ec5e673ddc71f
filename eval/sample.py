"""The one record in which a generated image travels: sample stage, filter, evaluation, report.

`Item` says what was asked, this says what came back: the thought, the image, what the verifier and (in a training
round) the model itself made of it. A failure is a status, never a missing record.
"""

from __future__ import annotations

import io
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from data_gen.task import Item, Verdict

if TYPE_CHECKING:
    import numpy as np

SAID = "said"  # the setting of direct answers in words, which have no image

# In the order in which they are shown. `missing` is used for items that were asked but of which no record exists.
STATUSES = ("pass", "fail", "unreadable", "generation_failed", "unscored", "missing")


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """One answer to one item.

    item: what was asked. setting: how ("normal", "cot" or "said" in UniSandbox). k: which of several draws, from 0.
    seed: of the draw. thought: the think text, None where none was asked for; of the setting "said", the reply.
    image: PNG bytes, None where generation failed, and of the setting "said".
    verdict: what the program checks say; None as long as nobody has looked. self_verdict: what the model's own
    understanding says of it (STARS, paper 004 section 3.4 step 2); None outside the filter.
    """

    item: Item
    setting: str
    seed: int
    k: int = 0
    thought: str | None = None
    image: bytes | None = None
    verdict: Verdict | None = None
    self_verdict: Verdict | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What makes a sample unique within one evaluation or one sampling stage."""
        return (self.item.id, self.setting, self.k)

    @property
    def status(self) -> str:
        """One of STATUSES."""
        if self.image is None and self.setting != SAID:
            return "generation_failed"
        return "unscored" if self.verdict is None else self.verdict.status

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    def scored(self, verdict: Verdict) -> ScoredSample:
        """The same sample with another verdict: scoring again never generates again."""
        return replace(self, verdict=verdict)


def encode_png(image: np.ndarray) -> bytes:
    """uint8 [H, W, 3] or [H, W] -> PNG bytes (lossless, no timestamps: equal images give equal bytes).

    A picture that comes from the store of calls has its bytes with it.
    """
    from uni_train.models import pictures

    stored: bytes | None = getattr(image, "png", None)
    return pictures.encode_png(image) if stored is None else stored


def decode_png(data: bytes) -> np.ndarray:
    """PNG bytes -> uint8 [H, W, 3]."""
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))
