"""A recipe's rewards, with the models that some of them ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from data_gen.registry import TASKS
from data_gen.task import Item
from eval.prompts.rewards import SCORE, SELF_CHECK, asking
from eval.prompts.unisandbox import filter_prompt, parse_final_answer
from uni_train.config.schema import FlowGrpoConfig, JudgeConfig
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.batches import each_answered
from uni_train.rewards.asking import Asked, read_score
from uni_train.rewards.contract import Reward, RewardFunction
from uni_train.rewards.naming import reward_function
from uni_train.training.trained import select_parameters


def rewards(config: FlowGrpoConfig, model: UnifiedModel) -> list[Reward]:
    """The recipe's rewards by name, in its order. To be called with the weights that the run starts from in `model`.

    Raises:
        UsageError: an unknown reward. UserError: its module cannot be imported, or a judge does not answer.
    """
    found = []
    for name, one in config.used_rewards.items():
        function: RewardFunction
        if one.function == "self_check":
            function = self_check(model, config.trained, config.model.think_batch)
        elif one.judge is not None:
            function = judge(one.judge)
        else:
            function = reward_function(one.function)
        asked_apart = one.apart or one.judge is not None
        found.append(Reward(name, function, one.weight, apart=one.patience if asked_apart else None))
    return found


def self_check(model: UnifiedModel, trained: str, batch: int) -> Asked:
    """1 where the model's own understanding accepts the picture, as in the filter of STARS, else 0. The weights that
    the run starts from judge, whatever is trained since."""
    from uni_train.training.flow_grpo.policies import Reference

    # What draws takes no part in an answer, so there is nothing to be kept where it alone is trained.
    start: Reference | None = None
    if trained != "moe_gen":
        start = Reference(model, set(select_parameters(model, trained)))

    def answer(requests: Sequence[Request]) -> list[str | Exception]:
        replies: list[str | Exception] = []
        for at in range(0, len(requests), batch):
            replies += each_answered(model.answer, requests[at : at + batch])
        return replies

    def question(prompt: str, item: Item | None) -> str:
        own = model.verification_prompt(prompt)
        if own is not None:
            return own
        if item is not None and item.task in TASKS.names():
            return filter_prompt(item.task, prompt)
        return asking(SELF_CHECK, prompt)

    return Asked(answer, question, _accepted, within=nullcontext if start is None else start.active)


def judge(config: JudgeConfig) -> Asked:
    """The score that a model behind an OpenAI-compatible address gives, 0 to 1.

    Raises:
        ModelDown: nobody answers there. UsageError: no such model.
    """
    from uni_train.models.remote import RemoteModel, RemoteSettings

    settings = RemoteSettings(
        key_env=config.key_env,
        connections=config.connections,
        timeout=config.timeout,
        retries=config.retries,
        temperature=0.0,
        max_tokens=config.max_tokens,
    )
    remote = RemoteModel.open(str(config.address), settings)
    template = config.question or SCORE
    question: Callable[[str, Item | None], str] = lambda prompt, item: asking(template, prompt)  # noqa: E731
    return Asked(remote.answer, question, read_score)


def _accepted(reply: str) -> float | None:
    said = parse_final_answer(reply)
    return None if said is None else float(said)
