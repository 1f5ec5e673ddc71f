"""A file is replaced completely or not at all, also when the disk really refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from uni_train.core.files import atomic_path, atomic_write_bytes, atomic_write_json, sha256_of
from uni_train.data_gen import export
from uni_train.training.checkpoint_io import save_folder

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from uni_train.core.files import atomic_write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write() fails with EFBIG, as it would with ENOSPC
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    atomic_write_bytes(Path(sys.argv[1]), b"x" * (1 << 17))
except OSError as error:
    print(error.filename)
"""


def test_a_write_that_the_system_refuses_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(file), "the error names the file, not the temporary one"
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_an_exception_of_the_writer_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_path(file) as temporary:
        assert temporary.suffix == ".safetensors" and temporary.parent == tmp_path
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_written_files_obey_the_umask_whatever_the_library_does(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"shared")
    (tmp_path / "weights").chmod(0o444)
    before = os.umask(0o027)
    try:
        atomic_write_bytes(tmp_path / "a.json", b"a")
        with atomic_path(tmp_path / "model.safetensors") as temporary:
            save_file({"a": np.zeros(3)}, temporary)
        with atomic_path(tmp_path / "linked") as temporary:
            os.link(tmp_path / "weights", temporary)
        save_folder({"a": torch.zeros(3)}, tmp_path / "step=00000001")
        export.make("ureason", 1, 4, "train", 0, "nano", tmp_path / "data", force=False)
    finally:
        os.umask(before)
    written = [path for path in tmp_path.rglob("*") if path.name not in ("weights", "linked")]
    assert len(written) > 8
    assert {path.stat().st_mode & 0o777 for path in written if path.is_file()} == {0o640}
    assert {path.stat().st_mode & 0o777 for path in written if path.is_dir()} == {0o750}
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o444


def test_what_is_written_is_what_is_read_and_no_number_is_nan(tmp_path: Path) -> None:
    atomic_write_json(tmp_path / "a.json", {"√9": [1, 2.5, None]})
    with pytest.raises(ValueError):
        atomic_write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"√9": [1, 2.5, None]}
    assert sha256_of(Path(os.devnull)) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
