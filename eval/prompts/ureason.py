"""The instructions of UReason (Yang et al. 2026, arXiv 2602.08336).

Figure 25 (does the image meet the criterion) and Figure 26 (does the reasoning) are word for word; their placeholders
are filled as they stand, whatever they contain. The paper does not print two, which are ours: the instruction that asks
for a refined prompt between tags, and the one for an external prompt model (section 5).

The published way of finding a refined prompt is here too, because results are compared with it.
"""

# ruff: noqa: E501
from __future__ import annotations

import re

from uni_train.eval.prompts import filled

# Figure 25. Placeholder: {description}.
VERIFY_IMAGE = """\
You are an objective image evaluator. Your goal is to verify if the image content matches the provided text description.

Target Description: "{description}"

Please think step by step:

1. Analyze the image content carefully.
2. Compare the visual elements with the "Target Description".
3. Determine if the image strictly meets the requirements.

Finally, output your judgment in the following format:
 If it matches, output <answer>Yes</answer>.
 If it does not match, output <answer>No</answer>."""

# Figure 26. Placeholders: {user_prompt}, {model_thought}, {criteria}.
VERIFY_REASONING = """\
You are an objective reading comprehension evaluator. I will provide you with a "User Prompt", a model's "Thought Process" (which includes its intermediate thoughts and final refined prompt) and "Target Criteria". Your task is to judge whether the final state or conclusion described in the model's thought process contains and satisfies a specific "Target Criteria".

=== User Prompt ===
{user_prompt}

=== Model Thought Process ===
{model_thought}

=== Target Criteria ===
{criteria}

=== Instruction ===
Please think step by step:

1. Analyze the "Target Criteria" to understand the specific visual or logical constraints required.
2. Read the entire "Thought Process" carefully.
3. Determine whether the "Target Criteria" is successfully met or clearly present in the outcome of the thought process.
 - Note: The text does not need to match the criteria word-for-word, but the specific semantic meaning and target state must be unambiguously present. Do not guess or assume unstated information.

Finally, output your judgment in the following format:
If the target criteria is clearly met or present in the text, output <answer>Yes</answer>.
If the criteria is missed or contradicted, output <answer>No</answer>."""

# Ours: appended to a prompt in the reasoning-guided and the de-contextualized setting.
ASK_FOR_REFINED_PROMPT = """\
Reason step by step about what the image must finally show. Then end your reasoning with a refined prompt that describes only this final image, completely and without reference to the steps, between tags: <refined_prompt>...</refined_prompt>"""

# Ours: what an external prompt model is told. Placeholder: {prompt}.
EXTERNAL_PROMPT_MODEL = """\
You write prompts for a text-to-image model that cannot reason. Work out step by step what the image asked for below must finally show. Then write one refined prompt that describes only this final image, completely and without reference to the steps, between tags: <refined_prompt>...</refined_prompt>

{prompt}"""

# The released code looks for several phrases that end in "prompt", each perhaps followed by "is" and colons; where the
# last of them ends is where the last word "prompt" does.
_PUBLISHED = re.compile(r"\bprompt\b(?:\s+is)?:*", re.IGNORECASE)
_MARKERS = ("</think>", "<image_start>")


def verify_image_prompt(description: str) -> str:
    """Figure 25 for one criterion."""
    return filled(VERIFY_IMAGE, description=description)


def verify_reasoning_prompt(user_prompt: str, model_thought: str, criteria: str) -> str:
    """Figure 26 for one thought."""
    return filled(VERIFY_REASONING, user_prompt=user_prompt, model_thought=model_thought, criteria=criteria)


def external_prompt(prompt: str) -> str:
    """What an external prompt model is asked about a benchmark's prompt."""
    return filled(EXTERNAL_PROMPT_MODEL, prompt=prompt)


def published_refined_prompt(thought: str) -> str | None:
    """What the released code takes for the refined prompt, to the letter: all text after the last word "prompt".

    An "is" and colons behind that word go with it, and asterisks before the text; a label is not needed, so any mention
    of a prompt counts. None where there is no such word: the released code then draws by the whole thought; whoever
    follows it must do that, and count it.
    """
    matches = list(_PUBLISHED.finditer(thought))
    return without_markers(thought[matches[-1].end() :].strip().lstrip("*").strip()) if matches else None


def without_markers(text: str) -> str:
    """Without the markers of BAGEL's layout that the released code takes out of what it draws from."""
    for marker in _MARKERS:
        text = text.replace(marker, "")
    return text.strip()
