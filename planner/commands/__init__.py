"""The commands, one file each: options, and the call of ``planner.api``. Nothing is decided here."""
