"""`python -m uni_train`."""

import sys
from importlib.util import find_spec

if missing := [name for name in ("click", "hydra", "lightning", "torch") if find_spec(name) is None]:
    raise SystemExit(
        f"error: {sys.executable} lacks {', '.join(missing)}: activate the environment that uni_train is installed in "
        "(after `make demo`: . .venv/bin/activate)"
    )

from uni_train.cli.main import main

if __name__ == "__main__":
    main()
