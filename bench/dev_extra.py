"""Imported first by benchmarks that use code of the tests: ends in one line where the `dev` extra is missing."""

import importlib.util
import sys

if importlib.util.find_spec("pytest") is None:
    sys.exit("error: this benchmark uses the tests' models and servers. Install them: pip install -e '.[dev]'")
