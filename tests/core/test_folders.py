"""Files below a folder: linked folders, circles, links to nothing."""

from __future__ import annotations

from pathlib import Path

from uni_train.core.folders import files_below, walk


def test_linked_folders_are_entered_and_circles_are_not(tmp_path: Path) -> None:
    folder, other = tmp_path / "data", tmp_path / "other"
    for file in (folder / "a.txt", folder / ".hidden" / "b.txt", other / "c.txt", other / "deep" / "d.txt"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    (folder / "linked").symlink_to(other)
    (folder / "itself").symlink_to(folder)
    (other / "back").symlink_to(tmp_path)  # and from there to both again
    (folder / "e.txt").symlink_to(other / "c.txt")
    (folder / "gone.txt").symlink_to(tmp_path / "nothing")
    unread: list[Path] = []
    names = [file.relative_to(folder).as_posix() for file in files_below(folder, unread)]
    assert names == ["a.txt", "e.txt", "linked/c.txt", "linked/deep/d.txt"]
    assert unread == [folder / "gone.txt"]
    shown = {place.relative_to(folder).as_posix(): below for place, below, _ in walk(folder, without=("deep",))}
    assert shown["linked"] == ["back", "deep"] and "linked/deep" not in shown
