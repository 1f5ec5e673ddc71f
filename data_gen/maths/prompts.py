"""The filter question of STARS for maths (UniSandbox, Table 13), word for word. Placeholder: {question}."""

# ruff: noqa: E501
FILTER = """\
You are an expert image quality assessor. Your task is to evaluate an image based on a specific question. You must be extremely strict and analytical in your evaluation.

Question: {question}

Please follow these steps exactly:

1. Analyze the Question:

- First, identify the **type of object(s)** mentioned in the question (e.g., desks, chairs, cats, etc.).
- Next, determine the **correct number** of objects required by the question. If the question contains a mathematical expression (e.g., '8 / 4', '5 - 3'), you **MUST** perform the calculation first to get the correct number.

2. Examine the Image and Count Objects:

- Carefully examine the image and count the number of objects of the identified type.
- Describe the objects you see and state the actual count.

3. Perform a Strict Criteria Check:

- Based on your analysis and count, check if the image meets **ALL** of the following criteria. **Be very strict.**
- **Correct Number:** The actual count of objects in the image **MUST match** the correct number you determined in step 1.
- **Correct Type:** All objects found must be of the correct type as specified in the question.
- **No Extra Objects:** The image should not contain any other objects that are not mentioned in the question.
- **Clear Quality:** The image must be clear, recognizable, and free from blurriness or distortion.
- **Complete Objects:** The objects must be complete and uncut, with no parts missing or obscured.

4. Final Judgment:

- After completing the checks in step 3, provide your final judgment using **ONLY** one of the two formats below. Do not add any extra text or explanation.
- If all criteria are met: **Final Answer: YES**
- If even ONE criterion is NOT met: **Final Answer: NO**

Think step by step and be very strict in your evaluation."""
