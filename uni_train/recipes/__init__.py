"""The kinds of recipes: a module each, with its keys, their rules, its stages and what they do.

A recipe file says `kind: stars`, and `uni_train.recipes.stars` is that kind. What a kind is: `uni_train.config.kinds`.
"""
