"""Exit codes; ``tofu --help`` says what they mean."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_WORKER = 3
EXIT_BUG = 4
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143
