"""The instructions given to a model that judges: one file per benchmark, with the strict parsers of their answers."""
