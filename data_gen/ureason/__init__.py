"""UReason (Yang et al. 2026, arXiv 2602.08336).

Images whose content must be reasoned out first, over five tasks and thirty subcategories.

taxonomy: the names. outcomes: what an image must show, in data, in words and for programs. files: the published
schema. task: the generator; arithmetic, spatial, attribute, text, code: its five halves of plain English, nano: what
can be said and drawn in nano's world. execution: code is run, not guessed.
"""
