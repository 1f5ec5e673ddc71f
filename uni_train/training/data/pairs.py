"""Folders of pairs: images with instructions beside them, and folders of references, which are shown for them.

    target/a.png, target/a.txt       what is drawn, and the instruction
    control/a.png                    its reference; of several folders in their order
    control/b_0.png, b_1.png         several of one folder, in the order of their numbers

A reference has the path of its target, each below its folder and without its suffix, and perhaps `_` and a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from uni_train.core.errors import UserError
from uni_train.core.folders import files_below
from uni_train.core.reading_limits import image_suffixes
from uni_train.training.data.files.folder import CaptionedImages
from uni_train.training.data.rows import BadRow, Joined, Row, RowFile, few

_NUMBER = re.compile(r"_(\d+)$")


class Pairs(CaptionedImages):
    """Images with captions as edits: rows of `image`, `caption` and `input_images`.

    references: folder -> name of a target -> its references there, in order.
    """

    def __init__(self, folder: Path, images: CaptionedImages, references: Mapping[Path, Mapping[str, list[Path]]]):
        super().__init__(folder, images.images, images.captions)
        self.names, self.references = _names(self.images, folder), references

    def __getitem__(self, index: int) -> Row:
        row, name = super().__getitem__(index), self.names[index]
        for folder, files in self.references.items():
            if name not in files:
                without = len(set(self.names) - files.keys())
                raise BadRow(f"has no reference {folder / name}.*; {without} of {len(self)} targets have none there")
        shown = [str(file) for files in self.references.values() for file in files[name]]
        return Row({**row.values, "image": str(self.images[index]), "input_images": shown}, Path())

    def named(self, index: int) -> Iterator[Path]:
        yield from super().named(index)
        yield from RowFile.named(self, index)


def referenced(rows: Joined, references: str | Sequence[str]) -> Joined:
    """A folder of images with captions as pairs.

    Raises:
        UserError: rows of anything else; no such folder, one within the other, or two references of one name.
    """
    folder, images = rows.files[0], rows.parts[0]
    if len(rows.parts) > 1 or not isinstance(images, CaptionedImages):
        hint = "Leave references out where rows name their images; give each folder of images a source of its own."
        raise UserError(f"references belong to one folder of images with captions, and {few(rows.files)} is none", hint)
    found: dict[Path, Mapping[str, list[Path]]] = {}
    remarks, parents = [*rows.remarks], {image.parent.resolve() for image in images.images}
    for place in map(Path, [references] if isinstance(references, str) else references):
        if not place.is_dir() or any(parent.is_relative_to(place.resolve()) for parent in parents):
            why = "holds targets as well" if place.is_dir() else "is no folder"
            raise UserError(
                f"references: {place} {why}", "Give a folder of input images beside that of the edited ones."
            )
        found[place], left = _by_target(place, set(_names(images.images, folder)))
        remarks += [f"{place}: references of no target: {few(left)}"] if left else []
    return Joined([Pairs(folder, images, found)], [folder], remarks)


def _names(files: Sequence[Path], folder: Path) -> list[str]:
    return [str(file.relative_to(folder).with_suffix("")) for file in files]


def _by_target(folder: Path, targets: set[str]) -> tuple[dict[str, list[Path]], list[Path]]:
    """Target -> its references in order; and those of no target."""
    files = [file for file in files_below(folder) if file.suffix.lower() in image_suffixes()]
    named = dict(zip(_names(files, folder), files, strict=True))
    kept = {*named.values()}
    if clash := next((file for file in files if file not in kept), None):
        raise UserError(f"references: {clash} is not the only image of this name", "Rename one of them.")
    numbered: dict[str, list[tuple[int, Path]]] = {}
    for name, file in named.items():
        number = None if name in targets else _NUMBER.search(name)
        target, place = (name, -1) if number is None else (name[: number.start()], int(number[1]))
        numbered.setdefault(target, []).append((place, file))
    left = [file for target in numbered.keys() - targets for _, file in numbered[target]]
    return {target: [file for _, file in sorted(numbered[target])] for target in numbered.keys() & targets}, sorted(
        left
    )
