"""Which checkpoint a served judge is, where its server says so: `uni_train serve` does, by the hash of its files."""

from __future__ import annotations

from dataclasses import replace

from uni_train.eval.judges.config import JudgeConfig
from uni_train.eval.judges.model import key_of
from uni_train.eval.last_seen import LastSeen
from uni_train.http_limits import BadReply, NoReply, get_json

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
    found = ""  # a server, and not ours
    try:
        _, about = get_json(judge.base_url.rstrip("/") + "/models", key_of(judge) or "", PATIENCE)
        said = next(model["uni_train"]["content"] for model in about["data"] if model["id"] == judge.model)
        found = said if isinstance(said, str) else ""
    except (BadReply, LookupError, TypeError, StopIteration):
        pass
    except NoReply:
        return replace(judge, served=((seen and seen.of(server)) or {}).get("content", ""))
    if seen is not None:
        seen.keep(server, {"content": found})
    return replace(judge, served=found)
