"""Training: the Lightning module, step-indexed data, checkpoints without pickle, curricula, `fit.fit_supervised`."""
