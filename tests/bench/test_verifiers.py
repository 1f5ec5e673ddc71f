"""bench/verifiers.py loads a file of others without the packages that it lacks, and says what to clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import verifiers


def test_a_file_is_loaded_without_packages_that_are_absent(tmp_path: Path) -> None:
    folder = tmp_path / "owner+name" / "their_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('not asked for')\n")
    (folder / "base.py").write_text("LIMIT = 0.5\n")
    (folder / "score.py").write_text(
        "import package_of_models\nfrom .base import LIMIT\ndef score(x: package_of_models.Model): return x > LIMIT\n"
    )
    verifier = verifiers.Verifier("owner/name", "0" * 40, "their_package/score.py", "", "", lambda module: iter(()))
    assert verifiers.load(verifier, tmp_path).score(0.7)
    with pytest.raises(SystemExit, match=r"git clone https://github.com/owner/name"):
        verifiers.load(verifier._replace(file="their_package/absent.py"), tmp_path)
