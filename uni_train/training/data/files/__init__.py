"""Kinds of files that rows come from, a module each by the suffix; `uni_train.training.data.rows.FILES` finds them."""
