from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from tests.eval.judges.criteria import Criteria
from uni_train.eval.benchmark import Ask, Case, Sample
from uni_train.eval.images import ImageStore
from uni_train.eval.judges.perturbation import perturbed
from uni_train.eval.judges.ways import _comparison
from uni_train.models.pictures import encode_png

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 12, 3), np.uint8)


def test_changes_keep_the_size_and_what_is_shown(tmp_path: Path) -> None:
    stored = ImageStore(tmp_path).put(encode_png(PIXELS))
    sample = Sample(Ask(Case("a", "all", "Draw."), "direct", 0, 0), parts=(stored, "words", encode_png(PIXELS)))
    for change, kind in (("jpeg", "JPEG"), ("resize", "PNG")):
        found = perturbed(sample, change)
        assert found.text == "words" and found.images[0] == found.images[1] != sample.images[0]
        image = Image.open(io.BytesIO(found.images[0]))
        assert (image.format, image.size) == (kind, (12, 20)) and perturbed(sample, change) == found


def test_a_tournament_reads_images_of_a_store(tmp_path: Path) -> None:
    stored = ImageStore(tmp_path).put(encode_png(PIXELS))
    case = Case("a", "all", "Draw.", images=(stored,))
    one, two = (Sample(Ask(case, "direct", k, 0), parts=(stored,)) for k in range(2))
    prompt, images = _comparison(Criteria(1), one, two)
    assert images == (encode_png(PIXELS),) * 3 and all(isinstance(image, bytes) for image in images)
    assert "1 given with the request; 1 of candidate A; 1 of candidate B" in prompt
