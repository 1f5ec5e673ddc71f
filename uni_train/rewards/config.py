"""The keys of a reward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Interval

from uni_train.config.schema import Count, JudgeConfig, Seconds, ServerConfig
from uni_train.core.addresses import checked_address


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """function: verifier, verifier_dense, self_check, judge, server, pickscore, clip_score; MODULE:FUNCTION or
    FILE.py:FUNCTION as in trl."""

    function: str
    weight: Annotated[float, Interval(ge=-1e6, le=1e6)] = 1.0
    judge: JudgeConfig | None = None  # function=judge
    python: str | None = None  # an interpreter with packages of its own that runs MODULE:FUNCTION or FILE.py:FUNCTION
    address: str | None = None  # function=server: http://HOST:PORT/PATH (docs/rewards.md)
    server: ServerConfig = field(default_factory=ServerConfig)  # how the address is asked
    model: str | None = None  # function=pickscore or clip_score: a folder or Hub id; null = the published one
    batch: Count = 16  # images that an interpreter, a server or a model gets at once
    background: bool = False  # a thread calls it for some images while others are drawn, as for judges and servers
    patience: Seconds = 600.0  # seconds that a reward in the background may take after the last image; python: a batch

    def __post_init__(self) -> None:
        """Raises UsageError for an address that is none of HTTP."""
        if self.address is not None:
            checked_address(self.address, "http://HOST:PORT/PATH")
