"""`uni_train serve`: a model behind OpenAI's protocol, for judges, for evaluations elsewhere, for other programs."""
