"""Which weights a served judge has, where its server says so: `uni_train serve` does, by the hash of its files."""

from __future__ import annotations

from dataclasses import replace

from uni_train.addresses import key_for
from uni_train.config.schema import JudgeConfig
from uni_train.eval.last_seen import LastSeen
from uni_train.http_client import BadReply, NoReply, Refused, get_json, served_content

_PATIENCE = 5.0  # seconds


def with_served_revision(judge: JudgeConfig, seen: LastSeen | None = None) -> JudgeConfig:
    """The judge, and its small ones, with what their servers say of their weights as `served`.

    Replies then outlive the port of `uni_train serve`, and not its weights. Of a server that does not answer, what it
    said last. Unchanged where a revision is given, for services, and where the server says nothing: `run` warns then.
    """
    judge = replace(judge, small=tuple(with_served_revision(small, seen) for small in judge.small))
    if judge.revision or judge.base_url is None:
        return judge
    server = {"judge": judge.name, "at": judge.base_url}
    content = ""
    try:
        how = replace(judge, retries=0, timeout=_PATIENCE)
        about = get_json(f"{judge.base_url}/models", key_for(judge.address, judge.key_env), how)
        listed = next(model for model in about["data"] if model["id"] == judge.name)
        content = served_content(listed)
        if content and "uni_train" not in listed:  # no hash of the weights: it may not tell two servers apart
            content = f"{judge.base_url}@{content}"
    except (BadReply, NoReply, LookupError, TypeError, StopIteration) as error:
        if isinstance(error, NoReply) or (isinstance(error, Refused) and error.passes):  # 502 of a gateway before it
            return replace(judge, served=((seen and seen.of(server)) or {}).get("content", ""))
    if seen is not None:
        seen.keep(server, {"content": content})
    return replace(judge, served=content)
