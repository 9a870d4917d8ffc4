"""``python -m alpineagents``."""

import sys

from .cli import main

sys.exit(main())
