"""``python -m planner …``: the command ``tofu`` where its script is not on the path."""

from __future__ import annotations

import sys

from planner.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
