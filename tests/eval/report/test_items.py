"""Pages of items in a browser: images beside the page are loaded, and nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.eval.report.pages import HOSTILE, assert_sound
from uni_train.data_gen.export import make
from uni_train.data_gen.jsonl import read_objects, write_rows
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.registry import get_task
from uni_train.eval.report.items import gallery_page, items_page
from uni_train.eval.report.page import write_page

WIDTHS = """Promise.all(Array.from(document.images).map(image => {
    image.loading = "eager";
    return image.decode().then(() => image.naturalWidth);
}))"""


def widths(tab: Any, page: Path) -> list[int]:
    """Of all images, in pixels, when they are decoded."""
    tab.goto(page.as_uri())
    return list(tab.evaluate(WIDTHS))


def test_a_gallery_loads_the_images_beside_it_and_prompts_stay_text(tmp_path: Path, tab: Any) -> None:
    made = make(Maze("nano"), 3, 2, "test", 0, "nano", tmp_path / "maze", force=False)
    rows = [row | {"prompt": HOSTILE} for _, row in read_objects(made.path / "items.jsonl")]
    write_rows(made.path / "items.jsonl", rows)
    page = write_page(tmp_path / "index.html", gallery_page(tmp_path, [get_task("maze")]))
    assert widths(tab, page) == [16] * 4
    assert tab.title() == "Tasks" and tab.text_content(".prompt") == HOSTILE


def test_a_page_of_items_holds_steps_and_refused_images(
    tmp_path: Path, tab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = get_task("maths").generate(2, 1, "test", 0)
    page = write_page(tmp_path / "page.html", items_page(items))
    assert_sound(page.read_text())
    assert widths(tab, page) == [24] * 8  # a target and three wrong images of each
    monkeypatch.setattr(Maze, "frames", lambda self, item: [self.input_image(item)] * 3 + [self.render(item)])
    page = write_page(tmp_path / "page.html", items_page(Maze("nano").generate(1, 3, "test", 0)))
    widths(tab, page)
    wrong = ["blank", "input copied", "input erased in part", "half of the answer"]
    captions = ["input", "step 1", "step 2", "target", *wrong]
    assert tab.locator("figcaption").all_text_contents() == captions
    assert [text.split()[0] for text in tab.locator(".verdict").all_text_contents()] == ["fail"] * len(wrong)
    page = write_page(tmp_path / "page.html", items_page(get_task("maths", "everyday").generate(2, 1, "test", 0)))
    assert widths(tab, page) == []
