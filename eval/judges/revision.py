"""Which checkpoint a served judge is, where its server says so: `uni_train serve` does, by the hash of its files."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace

from eval.judges.config import JudgeConfig
from eval.judges.model import key_of

PATIENCE = 5.0  # seconds


def with_served_revision(judge: JudgeConfig) -> JudgeConfig:
    """The judge with its checkpoint's hash as revision: replies then outlive its port, and not its weights.

    Unchanged where a revision is given, where there is no address, and where the server does not say (no server does
    but our own) or does not answer: what that means shows when it is asked to judge.
    """
    if judge.revision or judge.base_url is None or judge.inspect_name != f"served/{judge.model}":
        return judge
    request = urllib.request.Request(
        judge.base_url.rstrip("/") + "/models", headers={"Authorization": f"Bearer {key_of(judge)}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            models = json.load(reply)["data"]
        found = next(model["uni_train"]["content"] for model in models if model["id"] == judge.model)
    except (OSError, ValueError, LookupError, TypeError, StopIteration):
        return judge
    return replace(judge, revision=found) if isinstance(found, str) else judge
