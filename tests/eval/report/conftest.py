from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench import report


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright")
    try:
        with report.browser() as launched:
            yield launched
    except LookupError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page of which neither the script nor the content security policy complains."""
    opened, complaints = browser.new_page(), []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda message: complaints.append(message.text))
    yield opened
    opened.close()
    assert complaints == []
