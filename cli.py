"""``python cli.py …`` in a checkout: the command ``tofu``, which is in ``planner/commands/main.py``."""

from __future__ import annotations

import sys

from planner.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
