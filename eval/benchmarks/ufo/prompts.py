"""What is asked. The cue prompts and the rubric are the paper's (A.2.1, A.2.2), word for word.

The paper prints no others; these are ours. One asks for an answer. Two ask a judge whether a cue is right (Table 5): by
a binary question for images, by chain of thought for texts, as section 5.1 chooses. One compares an open answer with
the reference. Placeholders are filled as they stand, whatever they contain.
"""

# ruff: noqa: E501
from __future__ import annotations

# A.2.1. Placeholder: {Question}.
TEXTUAL_CUE = """\
My specific question is: {Question}

Your task is to generate a key textual cue based on the provided reference information. This textual cue should:

Identify key entities, attributes, and relationships pertinent to the query. Focus on critical visual features (e.g., structure, spatial layout, states) that drive reasoning. Ensure the response is concise and informative, limited to 1-2 sentences.

The generated text cue should serve as an abstract, language-only substitute for a visual cue, helping to answer the question above."""

VISUAL_CUE = """\
My specific question is: {Question}
Your task is to generate an image based on the provided reference images. This generated image should serve as a visual cue to help answer the question above."""

# A.2.2: the prompt and the scoring rubrics; the inputs it lists follow (ours: how they are laid out).
DIMENSIONS = """\
Role. You are a strict evaluator of a model-generated Visual CoT (visual cue image) for a Visual QA task. Your goal is to judge whether the generated cue provides *usable visual evidence* to support the ground-truth answer, beyond answer correctness.

Inputs (ONLY these):

- Question: Q
- Ground-truth Answer: A_{gt}
- Generated Visual CoT image: I_{gen}

What to evaluate. Score the evidential quality of I_{gen} under five dimensions: (1) Evidence Relevance, (2) Faithfulness / Logical Consistency, (3) Causal Utility, (4) Localization / Specificity, (5) Non-redundancy / Compactness. Each dimension is scored as an **integer from 0 to 5**.

Hard rules.

- Judge evidence, not aesthetics.
- Only reward information that is *visually verifiable* in I_{gen}.
- If a factor is implied but not visually checkable, treat it as missing or weak.
- Penalize hallucinated or distracting content that could alter the decision.

Step 1: Identify decision-critical factors. From Q and A_{gt}, extract the minimal set of visual factors required to justify the answer (e.g., object identity, attribute, count, spatial relation, readable text). Mark each factor as **critical** (answer would flip if wrong) or **supporting**.

Step 2: Verify factors in I_{gen}. For each factor, assign one status: *verified* (clearly visible), *weak* (ambiguous/partial), *missing* (not shown), or *contradicted* (opposite evidence shown).

Step 3: Identify hallucinations or distractors. List any visually salient content that is not required by Q but may mislead the answer.

Output format (STRICT JSON ONLY).

{
  "decision_critical_factors": [
    {"factor": "...", "criticality": "critical|supporting",
     "status": "verified|weak|missing|contradicted", "why": "..."}
  ],
  "scores": {
    "relevance": 0,
    "faithfulness": 0,
    "causal_utility": 0,
    "specificity": 0,
    "compactness": 0
  },
  "failure_modes": [
    "missing_critical_evidence",
    "ambiguous_evidence",
    "contradiction_to_answer",
    "misleading_hallucination",
    "generic_scene"
  ],
  "notes": "Brief justification based only on visible evidence."
}"""

RUBRICS = """\
1. **Evidence Relevance.**

What: Coverage of **decision-critical visual factors** required to justify A_{gt} (only visually verifiable evidence counts).

Scoring (0–5):

- **0:** No decision-critical evidence.
- **1:** Thematic similarity only; no factor verifiable.
- **2:** Few factors weakly supported; most missing.
- **3:** Several factors verified, but at least one **critical** factor missing or ambiguous.
- **4:** Most critical factors clearly verified; minor gaps only.
- **5:** All or nearly all critical factors clearly and directly verified.

Rule: If any critical factor is missing or contradicted, relevance ≤ 3.

2. **Faithfulness / Logical Consistency.**

What: Logical compatibility with Q and A_{gt}; absence of contradictions or **misleading hallucinations**.

Scoring (0–5):

- **0:** Contradicts A_{gt} or strongly supports an alternative answer.
- **1:** Major inconsistency or hallucination likely flipping the decision.
- **2:** Inconsistency affecting a critical factor.
- **3:** Minor hallucinations, not affecting the decision.
- **4:** Fully consistent; only trivial extra details.
- **5:** Fully consistent; no competing or misleading content.

3. **Causal Utility (counterfactual proxy).**

What: Expected reduction of uncertainty relative to using Q alone; presence of a clear **decision hinge**.

Scoring (0–5):

- **0:** Misleading or harmful.
- **1:** No added evidence beyond the question.
- **2:** Weak confirmation; answer largely guessable.
- **3:** Meaningful support; uncertainty reduced.
- **4:** Clear decisive evidence resolving the ambiguity.
- **5:** Uniquely decisive evidence; cue is essential for confident resolution.

Rule: If no critical factor is clearly verifiable, causal utility ≤ 2.

4. **Localization / Specificity.**

What: Precision and inspectability of evidence (not a generic illustration).

Scoring (0–5):

- **0:** Generic scene; queried evidence not checkable.
- **1:** Evidence implied only.
- **2:** Evidence present but poorly visible or ambiguous.
- **3:** Decisive evidence visible, partial ambiguity remains.
- **4:** Clear and specific; low ambiguity.
- **5:** Unmistakable, sharply localized decisive evidence.

5. **Non-redundancy / Compactness.**

What: Signal-to-noise ratio; focus on necessary evidence without competing distractors.

Scoring (0–5):

- **0:** Dominated by distractors or misleading content.
- **1:** Heavy clutter; evidence hard to isolate.
- **2:** Noticeable distractors competing with evidence.
- **3:** Some redundancy; evidence still salient.
- **4:** Clean composition; minimal distraction.
- **5:** Maximally compact; only decision-critical evidence shown."""

# Ours from here on.
ANSWER_CHOICE = "Answer with the letter of the correct option alone, in the form: Answer: X"
ANSWER_OPEN = "Answer with a word or a short phrase alone, in the form: Answer: ..."
GIVEN_TEXT = "Textual cue: {cue}"
GIVEN_IMAGE = "The last image is a visual cue for this question."

# Placeholders: {question}, {answer}, {reference}.
JUDGE_IMAGE_CUE = """\
The last image was generated as a visual cue for the question below. Is the cue right: does it show the state that the question asks about, so that it supports the correct answer and contradicts nothing that decides it?

Question: {question}
Correct answer: {answer}
{reference}
Reply with <answer>Yes</answer> or <answer>No</answer> alone."""

# Placeholders: {question}, {answer}, {reference}, {cue}.
JUDGE_TEXT_CUE = """\
The text below was generated as a cue for a question about images. Is the cue right: does it describe the state that the question asks about, so that it supports the correct answer and contradicts nothing that decides it? It need not be in the words of the reference.

Question: {question}
Correct answer: {answer}
{reference}
Generated cue: {cue}

Think step by step: say what decides the question, what the cue says of it, and whether they agree. Then end with <answer>Yes</answer> or <answer>No</answer>."""

# Placeholders: {question}, {answer}, {reply}.
JUDGE_OPEN = """\
Does the reply give the same answer to the question as the reference? Other words, units in full and further correct detail do not matter; a reply that names several different answers, or none, does not match.

Question: {question}
Reference answer: {answer}
Reply: {reply}

Reply with <answer>Yes</answer> or <answer>No</answer> alone."""


def dimensions_prompt(question: str, answer: str) -> str:
    """A.2.2 with its inputs; the generated image is shown with it."""
    return f"{DIMENSIONS}\n\n{RUBRICS}\n\nQuestion: {question}\nGround-truth Answer: {answer}"
