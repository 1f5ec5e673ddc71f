"""Which checkpoint a served judge is, where its server says so: `uni_train serve` does, by the hash of its files."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace

from eval.judges.config import JudgeConfig
from eval.judges.model import key_of
from eval.last_seen import LastSeen

PATIENCE = 5.0  # seconds


def with_served_revision(judge: JudgeConfig, seen: LastSeen | None = None) -> JudgeConfig:
    """The judge with its checkpoint's hash as `served`: replies then outlive its port, and not its weights.

    Of a server that does not answer, what it said last. Unchanged where a revision is given, where there is no address,
    and where the server does not say (no server does but our own) or was never `seen`: what that means shows when it is
    asked to judge.
    """
    if judge.revision or judge.base_url is None or judge.inspect_name != f"served/{judge.model}":
        return judge
    server = {"judge": judge.model, "at": judge.base_url}
    request = urllib.request.Request(
        judge.base_url.rstrip("/") + "/models", headers={"Authorization": f"Bearer {key_of(judge)}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            models = json.load(reply)["data"]
        said = next(model["uni_train"]["content"] for model in models if model["id"] == judge.model)
        found = said if isinstance(said, str) else ""
    except (ValueError, LookupError, TypeError, StopIteration, urllib.error.HTTPError):
        found = ""  # a server, and not ours
    except OSError:
        return replace(judge, served=((seen and seen.of(server)) or {}).get("content", ""))
    if seen is not None:
        seen.keep(server, {"content": found})
    return replace(judge, served=found)
