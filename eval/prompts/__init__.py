"""The instructions given to a model that judges: one file per benchmark.

A template is a constant whose placeholders stand in braces, named like the values that `filled` puts there.
"""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def filled(template: str, **values: str) -> str:
    """The template with its placeholders filled, in one pass: braces in a value, and those that name none, stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)
