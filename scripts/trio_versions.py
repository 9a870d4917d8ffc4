"""Does ``simulate`` still decide the order of tasks in each trio that we allow? ``make trio-versions`` asks them.

It rests on private parts of trio (``testing/_simulation/_order.py``), which a version may change. Each version is
installed in an environment of its own beside everything else as locked, and the tests that look at those parts, and at
seeds that repeat, run there. The exit code is 0 when all of them pass.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final = ("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
"""From the lower bound in pyproject.toml on, beside the locked one, in which all tests run."""
TESTS: Final = ("tests/testing/test_simulate.py", "-k", "trio or order or same or repeat")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run(
            [*pip, "-r", "requirements/core.lock", "-r", "requirements/dev.lock", "-e", "."], cwd=ROOT, check=True
        )
        for version in VERSIONS:
            subprocess.run([*pip, f"trio=={version}"], cwd=ROOT, check=True)
            print(f"trio {version}", flush=True)
            subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
