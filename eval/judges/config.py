"""Which model judges, how it is asked, and what it may cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from uni_train.errors import UsageError, did_you_mean
from uni_train.http_limits import ANSWER_SECONDS, PATIENCE

DIALECTS = ("paper", "nano")
WAYS = ("published", "binary", "chain_of_thought", "majority", "confidence", "tournament")
"""Ways of asking (`uni_train.eval.judges.ways`)."""
DRAWN = ("majority", "confidence")
_OF_SERVERS = ("openai-api/", "vllm/", "sglang/")  # inspect-ai's own providers of servers with an address
_LEAST = {
    "max_tokens": 1,
    "attempts": 1,
    "max_connections": 1,
    "draws": 1,
    "first_draw": 0,
    "retries": 0,
    "timeout": 1,
    "patience": 1,
}


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars a million tokens, read and written."""

    input: float
    output: float

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """A judge model and the way of asking it. Raises UsageError for what cannot be meant.

    model: the name inspect-ai gives it, provider first: "google/gemini-2.5-pro", "openai/gpt-4o",
        "vllm/Qwen/Qwen2.5-VL-7B-Instruct", "hf/...". With `base_url`, what that server calls it (or one of
        inspect-ai's own providers of servers: "openai-api/SERVICE/MODEL", "vllm/MODEL").
    base_url: of an OpenAI-compatible server ("http://127.0.0.1:8000/v1").
    key_env: the environment variable that holds the key, where it is not the provider's usual one (with `base_url`:
        JUDGE_API_KEY; a local server wants none). The key itself is never part of a configuration.
    revision: what is behind the name, where the name does not say (a checkpoint's hash). Replies of one revision are
        not taken for those of another; with a revision given, neither does it matter where the model is served.
    served: the revision that its server tells (`uni_train.eval.judges.revision`), where none is given.
    dialect: "paper" asks in the papers' words, "nano" in the few that nano knows.
    temperature, max_tokens, seed: how it answers. Draw d is asked with seed + d; None leaves the first to the server.
    way: one of WAYS. draws: of "majority" and "confidence". first_draw: the number of the first; reruns have others.
    small: judges that are asked first; it is asked only about what they do not settle (`eval.judges.cascade`).
    sure: in [0, 1]; a small judge that states less confidence settles nothing.
    attempts: how often it is asked, in all, until a reply answers.
    max_connections: requests under way at once.
    timeout: seconds for one request. retries: of a request that failed for a passing reason (no connection, 429, 5xx),
        with growing pauses. patience: seconds after which no retry is begun.
    price: what tokens cost. cost_limit: dollars for the judging of one evaluation, what its earlier runs spent
        included; needs a price. token_limit: the same in tokens.
    provider_args: more for inspect-ai's provider (device="cpu" for hf/...), or for the body of a request to the server
        at `base_url`; never a key.
    """

    model: str
    base_url: str | None = None
    key_env: str | None = None
    revision: str = ""
    served: str = ""
    dialect: str = "paper"
    temperature: float = 0.0
    max_tokens: int = 1024
    seed: int | None = None
    way: str = "published"
    draws: int = 5
    first_draw: int = 0
    small: tuple[JudgeConfig, ...] = ()
    sure: float = 0.8
    attempts: int = 3
    max_connections: int = 16
    timeout: float = ANSWER_SECONDS
    retries: int = 5
    patience: float = PATIENCE
    price: Price | None = None
    cost_limit: float | None = None
    token_limit: int | None = None
    provider_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.model.strip("/ "):
            raise UsageError("the judge has no name", "Name a model, such as openai/gpt-4o.")
        if self.base_url is None and "/" not in self.model:
            raise UsageError(
                f"the judge {self.model!r} has no provider",
                "Write provider/model (openai/gpt-4o, google/gemini-2.5-pro, vllm/..., hf/...), or give the address of "
                "the server that has it as base_url.",
            )
        if self.dialect not in DIALECTS:
            raise UsageError(
                f"there is no judge dialect {self.dialect!r}", did_you_mean(self.dialect, DIALECTS, "dialects")
            )
        self._check_way()
        self._check_small()
        if self.base_url is not None:
            _check_address(self.base_url)
        if any("key" in name.lower() or "token" in name.lower() for name in self.provider_args):
            raise UsageError(
                "a key has no place among the judge's provider_args",
                "Put it into an environment variable and name that as key_env.",
            )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UsageError(f"the judge's {name} must be at least {least}, not {getattr(self, name)}")
        if self.temperature < 0:
            raise UsageError(f"the judge's temperature must not be negative, as {self.temperature} is")
        if self.cost_limit is not None and self.price is None:
            raise UsageError(
                "the judge has a cost_limit and no price",
                "Give its price in dollars a million tokens, read and written.",
            )

    def _check_way(self) -> None:
        if self.way not in WAYS:
            raise UsageError(f"there is no way {self.way!r} of asking a judge", did_you_mean(self.way, WAYS, "ways"))
        if self.dialect == "nano" and self.way not in ("published", "majority"):
            raise UsageError(f"nano cannot be asked by {self.way}", "It knows published and majority.")
        if self.way == "majority" and self.draws % 2 == 0:
            raise UsageError(f"a majority of {self.draws} may be a tie", "Ask an odd number of draws.")
        if self.votes > 1 and self.temperature == 0:
            raise UsageError(
                f"{self.way} asks {self.draws} draws, which at temperature 0 are one reply",
                "Give the judge a temperature above 0 (--judge-temperature 0.7).",
            )

    def _check_small(self) -> None:
        if self.small and sum(one.votes for one in self.small) < 2 and self.small[0].way != "confidence":
            raise UsageError(
                "one small judge that is asked once is never in doubt: all would be its own",
                "Name a second --small-judge, or ask it by --small-way majority or confidence.",
            )
        if self.model in (one.model for one in self.small):
            raise UsageError(
                f"a small judge is called {self.model}, as the large one",
                "Scores say by name who made them: serve one of the two under another name.",
            )
        if "tournament" in (self.way, *(one.way for one in self.small)) and self.small:
            raise UsageError("a cascade settles samples one by one, a tournament all of a case", "Choose one of them.")

    @property
    def votes(self) -> int:
        """How many draws one verdict takes."""
        return self.draws if self.way in DRAWN else 1

    @property
    def label(self) -> str:
        """The way in words: "published", "majority of 5", "published, after small (published)"."""
        own = self.way.replace("_", " ") + (f" of {self.votes}" if self.votes > 1 else "")
        before = " and ".join(f"{one.model} ({one.label})" for one in self.small)
        return f"{own}, after {before}" if before else own

    @property
    def inspect_name(self) -> str:
        """The name with a provider before it, as inspect-ai wants it."""
        named = self.base_url is None or self.model.startswith(_OF_SERVERS)
        return self.model if named else f"served/{self.model}"

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides a reply besides the question itself; JSON-able, without secrets."""
        revision = self.revision or self.served
        where = {"revision": revision, "base_url": None if revision else self.base_url}
        said: dict[str, Any] = {"model": self.model, **where, "temperature": self.temperature}
        return said | {"max_tokens": self.max_tokens, "seed": self.seed, "provider_args": dict(self.provider_args)}

    @property
    def manner(self) -> dict[str, Any]:
        """The identity, and in what words and which way it is asked: what makes two judgings the same."""
        said = {**self.identity, "dialect": self.dialect}
        if self.way != "published":
            said |= {"way": self.way, "draws": self.votes}
        if self.small:
            said |= {"small": [one.manner for one in self.small], "sure": self.sure}
        return said

    @property
    def typed(self) -> JudgeConfig:
        """Without what its server tells, which it does only while it is up."""
        return replace(self, served="", small=tuple(one.typed for one in self.small))

    @property
    def key(self) -> str:
        """Hash of the identity."""
        said = json.dumps(self.identity, sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """For evaluation.json: the identity, and how it is asked."""
        asked = {
            "dialect": self.dialect,
            "way": self.way,
            "draws": self.votes,
            "attempts": self.attempts,
            "max_connections": self.max_connections,
        }
        asked |= {"small": [one.to_dict() for one in self.small], "sure": self.sure} if self.small else {}
        limits = {"cost_limit": self.cost_limit, "token_limit": self.token_limit}
        price = {"input": self.price.input, "output": self.price.output} if self.price else None
        return {"name": self.model, **self.identity, **asked, **limits, "price": price}


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_fine = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        raise UsageError(f"{address!r} is no address of a judge", "Write http://HOST:PORT/v1 or https://HOST/v1.")
    if parts.username or parts.password or parts.query:
        # Not shown: it may hold a key.
        raise UsageError(
            f"the address of the judge at {parts.hostname} holds a user name, a password or parameters",
            "Put the key into an environment variable and name that as key_env.",
        )
