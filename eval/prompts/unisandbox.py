"""UniSandbox's instructions (Niu et al. 2025, arXiv 2511.20561), word for word.

Tables 9 and 10: an image is captioned, then the caption is compared with the expected answer; Table 11 does the same for
portraits, fruits and flowers. Table 13: the model filters its own images for STARS (maths); nobody has published the filter for
symbolic mapping. These instructions belong to the tasks (data_gen/maths/prompts.py, data_gen/mapping/prompts.py). Markdown
emphasis is part of the published text and kept.

`eval.reading` reads the answers. An unreadable one is a status of its own, not a NO.
"""

# ruff: noqa: E501
from __future__ import annotations

from uni_train.eval.prompts import filled

# Table 9, prompt 1.
CAPTION_MATHS = """\
You are an extremely rigorous and neutral image captioning expert. Your task is to carefully examine a given image and generate a precise, concise caption (under 20 characters) that strictly and unambiguously describes the count and type of all clearly, fully, and normally visible objects in the image.

Instructions:

1. **Only count a single object type:** The image must contain only one clearly identifiable type of object. If multiple distinct object types are present, the task is considered an error.
2. **Only include objects that are:**
 - Fully visible
 - Clearly identifiable
 - Normal in shape, scale, and orientation
 - Not distorted, occluded, cropped, or ambiguous
3. **Strict Error Handling:** If the image contains more than one type of object, or if any visible object is distorted or has its geometry compromised, the task is considered an error.
4. **Your caption must be in the format:**
 - [Number] [object_type_plural] e.g., "3 apples", "2 chairs"
5. **Condition Check:** If the conditions in rules 1-3 are not met, you must output 'Error'. Do not provide any other explanations.

Output Format: Caption: [your output here]"""

# Table 10, prompt 1.
CAPTION_MAPPING = """\
You are an extremely rigorous and neutral image captioning expert. Your task is to carefully examine a given image and generate a precise, concise caption (under 20 characters) that strictly and unambiguously describes the count and type of all clearly, fully, and normally visible objects in the image.

Instructions:

1. **Only count a single object type:** The image must contain only one clearly identifiable type of object. If multiple distinct object types are present, the task is considered an error.
2. **Only include objects that are:**
 - Fully visible
 - Clearly identifiable
 - Normal in shape, scale, and orientation
 - Not distorted, occluded, cropped, or ambiguous
3. **Strict Error Handling:** The task is considered an error if any of the following conditions are met:
 - The image contains more than one type of object.
 - Any visible object is distorted or has its geometry compromised.
 - **The image contains any letters (e.g., A, B, C), symbols (e.g., punctuation marks, mathematical operators like +, -, #, $), or numbers (e.g., 1, 2, 3).**
4. **Your caption must be in the format:**
 - [Number] [object_type_plural] e.g., "3 apples", "2 chairs"
5. **Condition Check:** If the conditions in rules 1-3 are not met, you must output 'Error'. Do not provide any other explanations.

Output Format: Caption: [your output here]"""

# Tables 9 and 10, prompt 2 (the same text in both). Placeholders: {caption}, {expected_answer}.
COMPARE = """\
You are a rigorous and fair caption evaluator. Your task is to compare a generated image caption with an expected answer, and determine whether they match **perfectly and exclusively in count and object meaning**.

Evaluation Rules:

1. The caption must match the expected answer in:
 - **Count:** The number of each object type must be exactly the same.
 - **Object Type:** The object types in both descriptions must be exactly the same.
2. If any object type in the caption does not match the expected answer, or if the count is wrong, or if there are extra object types, return: **Score: NO**
3. If and only if the object types and counts in the caption exactly match the expected answer, return: **Score: YES**

Input:

- **Generated Caption:** {caption}
- **Expected Answer:** {expected_answer}

Output Format: Score: [YES or NO]"""

# Ours, for compat=official: the released code's judge of mappings names the object and compares what is meant, whatever
# the number; its words are not in the paper.
CAPTION_OBJECT = """\
You are an extremely rigorous and neutral image captioning expert. Your task is to carefully examine a given image and name the kind of object that it shows.

Instructions:

1. **Name a single object type**, as specifically as you can tell, in the singular, e.g., "apple", "chair". Do not count.
2. If the image shows more than one type of object, or none that can be identified, you must output 'Error'. Do not provide any other explanations.

Output Format: Caption: [your output here]"""

COMPARE_OBJECT = """\
You are a rigorous and fair caption evaluator. Your task is to compare a generated image caption with an expected answer, and determine whether both mean the same kind of object.

Evaluation Rules:

1. Singular and plural are the same, and so are common synonyms (e.g., cup and mug). Numbers do not matter.
2. If the caption means another kind of object, or is 'Error', return: **Score: NO**
3. If and only if both mean the same kind of object, return: **Score: YES**

Input:

- **Generated Caption:** {caption}
- **Expected Answer:** {expected_answer}

Output Format: Score: [YES or NO]"""

# Table 11, prompt 1. The age and gender slots are run together in the paper; their brackets are put right here.
CAPTION_KNOWLEDGE = """\
You are a hyper-precise and cautious vision assistant. **Task:** Produce a single-line caption for the given image.

Rules:

1. If any person is visible, output strictly in this format:
 - Person: <skin_tone_or_ethnicity>; <hair_color>; <age_group: kid|mid-age|old>; <gender: male|female|unclear>
 - **Crucial:** The <skin_tone_or_ethnicity> slot MUST be one of these three options exactly: African/Indigenous, Caucasian, East Asian.
 - If the person does not clearly fit one of these categories or you are uncertain, output 'unclear' for that slot.
 - If uncertain about other attributes (hair, age, gender), output 'unclear' for that specific slot.
2. If no person is visible, you MUST follow these steps:
 - (a) First, determine if the primary subject is a *single type* of flower OR a *single type* of fruit.
 - (b) If it IS a flower, you MUST output its *specific type/species* in this format: Flower: <specific_type_name> (e.g., 'Flower: rose', 'Flower: tulip').
 - (c) If it IS a fruit, you MUST output its *specific type/species* in this format: Fruit: <specific_type_name> (e.g., 'Fruit: apple', 'Fruit: banana').
 - (d) **ABSOLUTE RULE:** General categories like 'Flower: flower' or 'Fruit: fruit' are FORBIDDEN.
3. **REJECTION:** You MUST output exactly 'Reject' if ANY of the following are true:
 - (a) The image contains no person, AND the primary subject is **NOT** a flower or a fruit (e.g., it is a car, dog, building, etc.).
 - (b) (Per Rule 2) The image IS a flower or fruit, but you cannot confidently identify its *specific type* (e.g., you can only tell it's a 'fruit', not an 'apple'). In this case, you MUST output 'Reject'.
 - (c) The image is distorted, unrealistic, surreal (e.g., face on fruit), or generally ambiguous.
 - (d) The image contains multiple different types of flowers or multiple different types of fruits.
 - (e) (Per Rule 1) The person's ethnicity is visible but does not fit the three required categories.
4. Output must be ONE line with no extra words, no explanations."""

# Table 11, prompt 2. Placeholders: {caption}, {gt}.
COMPARE_KNOWLEDGE = """\
You are a careful evaluator. Determine if a generated caption and a ground truth (GT) match semantically.

Strict rules:

1. If the generated caption is exactly 'Reject', it is automatically incorrect. Respond with 'Score: NO'.
2. If the generated caption starts with "Person:", it contains 4 slots: skin/ethnicity; hair color; age group (kid—mid-age—old); gender (male—female—unclear).
 - The GT must be a sentence describing a person (e.g., 'An elderly African/Indigenous woman with black hair.').
 - Compare each slot against the GT description. Allow common synonyms (e.g., blond=blonde; elderly/senior=old).
 - The generated ethnicity MUST be one of [African/Indigenous, Caucasian, East Asian] or 'unclear'.
3. If the generated caption starts with "Flower:" or "Fruit:", compare the specific object type with the GT.
 - The GT must be a specific type (e.g., 'carnation', 'apple').
 - **Crucial:** The generated caption *format* (Flower:/Fruit:) AND the *specific type* must BOTH match the GT.
 - **Singular/Plural forms ARE a match.** (e.g., 'apple' matches 'apples'; 'peach' matches 'peaches').
 - Only semantic equivalents are a match (e.g., cup ≈ mug).
 - Example 1 (Match): Generated 'Flower: rose' and GT 'rose' is 'Score: YES'.
 - Example 2 (Match): Generated 'Fruit: apple' and GT 'apple' is 'Score: YES'.
 - **Example 3 (Match - Plural): Generated 'Fruit: apple' and GT 'apples' is 'Score: YES'.**
 - **Example 4 (Match - Plural): Generated 'Fruit: peach' and GT 'peaches' is 'Score: YES'.**
 - Example 5 (Mismatch - Wrong Type): Generated 'Flower: rose' and GT 'carnation' is 'Score: NO'.
 - Example 6 (Mismatch - General Term): Generated 'Flower: flower' and GT 'carnation' is 'Score: NO'.
 - **Example 7 (Mismatch - Wrong Category): Generated 'Fruit: rose' and GT 'rose' is 'Score: NO'.**
 - **Example 8 (Mismatch - Wrong Category): Generated 'Flower: apple' and GT 'apple' is 'Score: NO'.**
4. If formats fundamentally differ (e.g., generated caption starts with 'Person:' while GT is 'apple'), respond with 'Score: NO'.

Input: Generated: {caption} — GroundTruth: {gt}

Output format (MUST be exact): Score: YES or Score: NO"""

CAPTIONS = {
    "maths": CAPTION_MATHS,
    "mapping": CAPTION_MAPPING,
    "mapping_official": CAPTION_OBJECT,
    "knowledge": CAPTION_KNOWLEDGE,
}
COMPARISONS = {"maths": COMPARE, "mapping": COMPARE, "mapping_official": COMPARE_OBJECT, "knowledge": COMPARE_KNOWLEDGE}
REFUSED_CAPTIONS = ("Error", "Reject")
"""What a judge says of an image in which it sees nothing of the kind asked for; it never matches (Tables 9 to 11)."""


def compare_prompt(caption: str, expected_answer: str, kind: str = "maths") -> str:
    """The second prompt of Tables 9 to 11, for a kind of COMPARISONS, or that of maths."""
    template = COMPARISONS.get(kind, COMPARE)
    return filled(template, caption=caption, expected_answer=expected_answer, gt=expected_answer)
