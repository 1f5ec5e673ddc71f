"""Which files of a folder are read as rows, by kind and by split, and which are not.

Splits are those of the datasets library. The first that applies says of which split a file is:

1. `configs` in the header of README.md: the default one, else all of them;
2. the innermost folder with a word of `_KEYWORDS`, such as train, dev or test, in its name;
3. the same in the name of a file of rows; NAME of NAME-00000-of-00002.parquet.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from uni_train.core.errors import UserError
from uni_train.core.folders import files_below
from uni_train.core.reading_limits import Unreadable, image_suffixes, parse_yaml, read_text, reason
from uni_train.training.data.rows import ARCHIVES, FILES, FORMS, BadRow, Joined, Row, RowFile, few, file_rows, suffix_of
from uni_train.training.data.spans import begins_array

_KEYWORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_HELD_OUT = ("validation", "test")
_WORD = re.compile(rf"(?:^|[-._ 0-9])({'|'.join(_KEYWORDS)})(?=[-._ 0-9]|$)")
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\b")
_HEADER = re.compile(r"---\s*\n(.*?\n)---", re.DOTALL)
_KINDS = (("metadata.jsonl", "metadata.csv", "metadata.json", "items.jsonl"), (".parquet",), (".jsonl", ".csv"),
          (".tar",), (".json",))  # fmt: skip
_CAPTIONS = 3  # the place of images with captions among `_KINDS`
Splits = Mapping[Path, str | None]


@dataclass(frozen=True, slots=True)
class Content:
    """What of a folder is read: files of rows, or images, with `captions` by the image without its suffix."""

    rows: Sequence[Path]
    images: Sequence[Path] = ()
    captions: Mapping[Path, Path] = field(default_factory=dict)
    remarks: Sequence[str] = ()


@FILES.register("folder")
def folder_rows(place: Path, folder: Path | None, held_out: bool) -> Joined:
    """The rows of `content`. Raises UserError as that, and as their files do."""
    there = content(place, held_out)
    images = [CaptionedImages(place, there.images, there.captions)] if there.images else []
    return Joined([*(file_rows(file, folder) for file in there.rows), *images], there.rows or [place], there.remarks)


def content(folder: Path, held_out: bool = False) -> Content:
    """The training split of a folder; all of it where it has no splits.

    Args:
        held_out: its validation split in place of that, or else its test split.

    Raises:
        UserError: nothing there can be read as rows, or all of it is held out; a damaged README.md.
    """
    real, lost = cache(os.path.realpath), list[Path]()
    below = {(real(file.parent), file.name): file for file in reversed(files_below(folder, lost))}
    files = sorted(below.values())  # of a folder that is linked twice once
    captions = {
        file.with_suffix(""): file for end in (".caption", ".txt") for file in files if file.suffix.lower() == end
    }
    pictures = [file for file in files if file.suffix.lower() in image_suffixes()]
    last = _CAPTIONS if any(file.with_suffix("") in captions for file in pictures) else len(_KINDS)
    kinds = {file: kind for file in files if (kind := _kind(file)) is not None and kind < last}
    listed = _of_readme(folder)
    if listed.keys().isdisjoint(kinds):
        splits = {file: _of_file(file.relative_to(folder)) for file in kinds}
    else:
        splits = {file: listed.get(file, "not in README.md") for file in kinds}
    rows, images = _chosen(kinds, splits, held_out), list[Path]()
    if not rows:
        kinds = dict.fromkeys(pictures, 0)
        splits |= {file: _of_folder(file.relative_to(folder).parent) for file in kinds}
        images = _chosen(kinds, splits, held_out)
    read = {*rows, *images, *(captions.get(file.with_suffix("")) for file in kinds if not rows), folder / "README.md"}
    left = {file: split for file, split in splits.items() if split is not None and file not in read}
    unread = Counter(
        file.suffix.lower() or file.name
        for file in files
        if file not in read
        and file not in left
        and not (rows and file.suffix.lower() in image_suffixes())  # rows may name them
    )
    if not rows and not images:
        raise _nothing(folder, left, unread)
    names = ", ".join(sorted({splits[file] or "none" for file in (*rows, *images)}))
    offer = "" if held_out or not {*left.values()} & {*_HELD_OUT} else f"; held_out.path={folder} draws prompts of it"
    remarks = [f"{folder}: split {names}; left out: {_by_split(folder, left)}{offer}"] if left else []
    remarks += [f"{folder}: not read: {_counted(unread)}"] if unread else []
    remarks += [f"{folder}: links to nothing, or closed folders: {len(lost)}, the first {lost[0]}"] if lost else []
    return Content(rows, images, captions, remarks)


def _kind(file: Path) -> int | None:
    """The place among `_KINDS` of a file of rows; JSON may be anything, of which an array alone is rows."""
    name, suffix = file.name.lower().removesuffix(".gz"), suffix_of(file)
    if suffix == ".json" and not begins_array(file):
        return None
    return next((place for place, known in enumerate(_KINDS) if name in known or suffix in known), None)


def _chosen(kinds: Mapping[Path, int], splits: Splits, held_out: bool) -> list[Path]:
    """The files of the first kind that are trained on, or held out."""
    kept = [file for file in kinds if splits[file] not in _HELD_OUT]
    if held_out:
        kept = next((some for name in _HELD_OUT if (some := [f for f in kinds if splits[f] == name])), kept)
    kind = min((kinds[file] for file in kept), default=None)
    kept = [file for file in kept if kinds[file] == kind]
    train = [file for file in kept if splits[file] == "train"]
    return train if train and not {splits[file] for file in kinds} <= {"train", None} else kept


# --- splits -----------------------------------------------------------------------------------------------------------


def _of_readme(folder: Path) -> dict[Path, str]:
    """The split of every file that the `configs` of README.md name. Raises UserError: it cannot be read."""
    file = folder / "README.md"
    try:
        header = _HEADER.match(read_text(file)) if file.is_file() else None
        values = parse_yaml(header[1], file) if header is not None and "configs:" in header[1] else {}
    except Unreadable as error:
        raise UserError(str(error), "Correct README.md, or name the files to train on.") from None
    configs = [entry for entry in values.get("configs") or () if isinstance(entry, dict)]
    named: dict[Path, str] = {}
    for config in [row for row in configs if row.get("default") or row.get("config_name") == "default"] or configs:
        given = config.get("data_files")
        for entry in given if isinstance(given, list) else [given]:
            split, paths = (entry.get("split"), entry.get("path")) if isinstance(entry, dict) else ("train", entry)
            for path in paths if isinstance(paths, list) else [paths]:
                pattern = os.path.join(config.get("data_dir") or "", str(path))
                for name in glob.glob(pattern, root_dir=folder, recursive=True):
                    named.setdefault(folder / name, _keyword(str(split)) or str(split))
    return named


def _of_file(file: Path) -> str | None:
    shard = _SHARD.match(file.name)
    return _of_folder(file.parent) or _keyword(file.name) or (shard[1] if shard is not None else None)


def _of_folder(folder: Path) -> str | None:
    return next((split for part in reversed(folder.parts) if (split := _keyword(part))), None)


def _keyword(name: str) -> str | None:
    word = _WORD.search(name.lower())
    return _KEYWORDS[word[1]] if word is not None else None


# --- what is said -----------------------------------------------------------------------------------------------------


def _nothing(folder: Path, left: Splits, unread: Mapping[str, int]) -> UserError:
    if left:
        hint = "A file or folder that is named itself is read whatever its split: give what you mean to train on."
        return UserError(f"{folder} has no training split, only {_by_split(folder, left)}", hint)
    packed = not ARCHIVES.isdisjoint(unread)
    there = f"it holds {_counted(unread)} files" if unread else "it is empty"
    return UserError(f"{folder} has no training data: {there}", "Unpack the archives." if packed else FORMS)


def _by_split(folder: Path, splits: Splits) -> str:
    files = defaultdict[str | None, list[Path]](list)
    for file, split in splits.items():
        files[split].append(file.relative_to(folder))
    return ", ".join(f"{split} ({few(some)})" for split, some in files.items())


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())[:8])


# --- images with captions -----------------------------------------------------------------------------------------


class CaptionedImages(RowFile):
    """Images as rows of `image` and `caption`.

    Args:
        captions: the files with captions, by the image without its suffix.

    Raises:
        UserError: no image has a caption, or two images share one.
    """

    def __init__(self, folder: Path, images: Sequence[Path], captions: Mapping[Path, Path]) -> None:
        self.images, self.captions = images, captions
        stems = Counter(image.with_suffix("") for image in images)
        without = [image for image in images if image.with_suffix("") not in captions]
        self._missing = f"{len(without)} of {len(images)} images have none"
        if len(without) == len(images):
            raise UserError(
                f"{folder} has {len(without)} images without captions; the first is {without[0].name}",
                f"Write each caption beside its image ({without[0].stem}.txt), or all in metadata.jsonl.",
            )
        if clash := [image for image in images if stems[image.with_suffix("")] > 1]:
            names, caption = f"{clash[0].name} and {clash[1].name}", captions.get(clash[0].with_suffix(""), clash[0])
            raise UserError(f"{clash[0].parent}: {names} share {caption.stem}.txt", "Rename one of them.")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Row:
        image = self.images[index]
        caption = self.captions.get(image.with_suffix(""))
        if caption is None:
            raise BadRow(f"has no caption {image.stem}.txt; {self._missing}")
        try:
            return Row({"image": image.name, "caption": read_text(caption).strip()}, image.parent)
        except (Unreadable, OSError) as error:
            raise BadRow(f"{caption.name}: {reason(error)}") from None

    def where(self, index: int) -> str:
        return str(self.images[index])

    def named(self, index: int) -> Iterator[Path]:
        image = self.images[index]
        return filter(None, (image, self.captions.get(image.with_suffix(""))))
