"""One file per published benchmark: its sets and settings, its headline, and the paper's own numbers."""
