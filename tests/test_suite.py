"""`make test` repeats what failed, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite import run

FAILS = "from pathlib import Path\n\nimport pytest\n\n\n@pytest.mark.parametrize('i', range({n}))\ndef test_one(i):\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "body", "code", "said"),
    [
        (3, "    flag = Path(f'flag{i}')\n    seen = flag.exists()\n    flag.touch()\n    assert seen or i == 0\n", 0,
         "passed only when repeated:\n  test_some.py::test_one[1]\n  test_some.py::test_one[2]\n"),
        (2, "    assert i == 0\n", 1, "repeated, alone and in one process: test_some.py::test_one[1]\n"),
        (6, "    assert False\n", 1, "6 tests failed, more than 5: none is repeated\n"),
        (1, "    pytest.exit('no disk', 3)\n", 3, "no disk"),
    ],
    ids=["by chance", "twice", "many", "not a matter of tests"],
)  # fmt: skip
def test_what_failed_is_repeated_once(
    n: int, body: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take a second of each start
    Path("pytest.ini").write_text("[pytest]\n")
    Path("test_some.py").write_text(FAILS.format(n=n) + body)
    assert run(["-q"]) == code
    assert said in capfd.readouterr().out
