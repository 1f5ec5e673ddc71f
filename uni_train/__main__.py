"""`python -m uni_train`."""

import os
import sys
from importlib.util import find_spec

if not sys.flags.safe_path and os.path.exists(sys.path[0]) and os.path.samefile(sys.path[0], "."):
    del sys.path[0]  # `python -m` puts the current folder there: a yaml.py beside somebody's run is not to be imported

if missing := [name for name in ("click", "hydra", "lightning", "torch") if find_spec(name) is None]:
    raise SystemExit(
        f"error: {sys.executable} lacks {', '.join(missing)}: activate the environment that uni_train is installed in "
        "(after `make demo`: . .venv/bin/activate)"
    )

from uni_train.cli.main import main

if __name__ == "__main__":
    main()
