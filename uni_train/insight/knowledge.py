"""Injected knowledge in hidden states: which models know whom, and the words that each question's states are read for.

Niu et al. (2025, arXiv 2511.20561, section 4.4, Figure 4) add up the probabilities of the *target knowledge* ("Draw her
favourite fruit": strawberry) and of the *related attribute* ("kid", "child", "male"), the way to it. Here the latter
are the words of the character's whole profile, name included, that the question neither names nor asks for.

Both have a control: the same words of another character. Words that both characters have are left out. For a forward
question its model was taught nothing about the other. For an inverse one it is the other of the pair, whom the same
model knows: a state that holds both alike has not found whose the favourite is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.config.insight import InsightConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.core.reading_limits import read_json, read_yaml
from uni_train.data_gen.knowledge.injection import Subject, read_subjects, subjects
from uni_train.data_gen.knowledge.people import VISIBLE, KnowledgeQuestion
from uni_train.data_gen.objects import plurals_of, singular_of
from uni_train.data_gen.phrasing import counted
from uni_train.eval.benchmark import BENCHMARKS, Case
from uni_train.eval.configured import world_of
from uni_train.models.checkpoint import resolve, source_of
from uni_train.run_folder import stage_folders

DIRECTIONS = ("forward", "inverse")
WORDS = ("target knowledge", "related attribute", "another's target", "another's related")
"""What the words of a case are, in `facts["words"]`."""
Profile = dict[str, list[str]]
"""Kind of question ("portrait", "fruit", ...) -> the words of its answer."""
_TAUGHT = "taught.json"  # of a stage that has taught a model
_NO_WORDS = {"a", "an", "with", "hair"}  # of a portrait


def models_of(checkpoint: str, config: InsightConfig) -> tuple[list[tuple[str, list[Case]]], list[str]]:
    """Models with their questions, and who is left out: those whose model did not pass its exam.

    Args:
        checkpoint: a run of the recipe `knowledge`, whose models are asked about their characters; the model of one of
            its stages; or a model that was taught nothing, which is asked about all of `n`.

    Raises:
        UsageError: keys of items where a run says who was taught, or a level. UserError: no model passed, or fewer than
            two characters. DataError: the split has not so many names.
    """
    is_run, path = source_of(checkpoint).kind == "run", Path(checkpoint).absolute()
    stages = stage_folders(path) if is_run else [path.parent]
    taught = {stage: _taught(stage) for stage in stages if (stage / _TAUGHT).is_file()}
    if config.level or config.data:
        raise UsageError("task=knowledge has no level and takes no data", "characters.path of the run gives files.")
    if not taught:
        place = resolve(checkpoint)
        world = config.world or world_of(place)
        people = subjects(world, config.n or 10, config.seed, config.split, DIRECTIONS)
        return [(place, _cases(people, people, world))], []
    if config.n or config.world or config.split != InsightConfig.split:
        raise UsageError(f"the run of {checkpoint} says who was taught", "Leave n, world and split out.")
    values = read_yaml(next(iter(taught)).parent.parent / "config.yaml")
    who, world = values["characters"], values["data"]["world"]
    if who["path"] is None:
        people = subjects(world, who["n"], who["seed"], who["split"], DIRECTIONS)
    else:
        people = read_subjects(Path(who["path"]), who["n"], DIRECTIONS)
    of_names = {person.names: person for person in people}
    asked = [
        (str(stage / "model") if is_run else resolve(checkpoint), _cases([of_names[names]], people, world))
        for stage, (names, injected) in taught.items()
        if injected
    ]
    if not asked:
        raise UserError(f"no model of {checkpoint} has passed its exam", "Raise epochs, or choose another run.")
    return asked, [", ".join(names) for names, injected in taught.values() if not injected]


def _taught(stage: Path) -> tuple[tuple[str, ...], bool]:
    """Whom a stage's model was taught about, and whether it passed its exam."""
    try:
        taught = read_json(stage / _TAUGHT)
        return tuple(taught["names"]), bool(taught["injected"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{stage / _TAUGHT} is damaged ({error!r:.100})", f"Redo the stage {stage}.") from error


def _cases(asked: Sequence[Subject], people: Sequence[Subject], world: str) -> list[Case]:
    profiles = {person.names[0]: _profile(person, world) for person in people if person.direction == "forward"}
    if len(profiles) < 2:
        raise UserError("the control is another character, and there is one only", "Choose two or more characters.")
    unisandbox: Any = BENCHMARKS.get("unisandbox")
    questions = {question.id: (person, question) for person in asked for question in person.pictures}
    cases: list[Case] = unisandbox.about([question for _, question in questions.values()], world, (), False).cases()
    return [
        replace(case, cluster=", ".join(person.names), facts={**case.facts, "words": _words(question, profiles)})
        for case in cases
        for person, question in [questions[case.id]]
    ]


def _profile(person: Subject, world: str) -> Profile:
    """Of a forward subject. A favourite is one thing, so its number is no knowledge."""
    profile: Profile = {}
    for question in person.pictures:
        if world == "nano":
            ((count, noun),) = counted(question.answer)
            profile[question.kind] = _forms(noun) + ([str(count)] if question.kind == "portrait" else [])
        elif question.kind == "portrait":
            values = [value for text in person.exam for name, value in text.expected.items() if name in VISIBLE]
            words = re.findall(r"\w+", " ".join([question.answer, *values]))
            profile["portrait"] = [word for word in dict.fromkeys(words) if word.lower() not in _NO_WORDS]
        else:
            profile[question.kind] = _forms(singular_of(question.answer))
    return profile


def _forms(noun: str) -> list[str]:
    return [noun, *sorted(plurals_of(noun) - {noun})]


def _words(question: KnowledgeQuestion, profiles: Mapping[str, Profile]) -> dict[str, list[str]]:
    """One of WORDS -> words. Raises UserError: nobody else differs in what is asked."""
    named = _parts(question.question)
    kinds = {name: [kind for kind in profiles[name] if named & set(profiles[name][kind])] for name in profiles}
    name = max(question.characters, key=lambda one: len(kinds[one]))  # the question names a favourite of an inverse one

    def words(of: str) -> tuple[list[str], list[str]]:
        """What is asked for of a character, and what else is known: neither is in the question."""
        unnamed = [kind for kind in profiles[of] if kind not in (question.kind, *kinds[name])]
        called = sorted(_parts(of)) if len(question.characters) > 1 else []  # a forward question names its character
        related = [word for kind in unnamed for word in profiles[of][kind]] + called
        target = profiles[of][question.kind]
        return target, [word for word in dict.fromkeys(related) if word not in named and word not in target]

    names = list(profiles)
    place = names.index(name)
    later = [*names[place + 1 :], *names[:place]]
    others = later if len(question.characters) == 1 else [one for one in question.characters if one != name]
    own = words(name)
    every = {*own[0], *own[1]}
    other = max(map(words, others), key=lambda one: len(set(one[0]) - every))  # the first of the most
    if not set(other[0]) - every:
        raise UserError(f"{question.id}: every other character has the same {question.kind}", "Choose more characters.")
    alike = [[word for word in some if word not in same] for some, same in zip(own, other, strict=True)]
    controls = [[word for word in some if word not in every] for some in other]
    return dict(zip(WORDS, (*alike, *controls), strict=True))


def _parts(text: str) -> set[str]:
    """Words and signs: nano's names are of signs."""
    return set(re.findall(r"[\w-]+|[^\w\s]", text.removesuffix(".")))
