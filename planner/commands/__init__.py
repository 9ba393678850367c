"""The commands, one file each: options, and the call of ``planner.api``. Nothing is decided here."""

import sys

if sys.platform == "win32":  # before a module that only POSIX systems have is imported
    sys.stderr.write("error: tofu does not run on Windows itself\nhint: install it in WSL, which is Linux\n")
    sys.exit(2)
