"""Settings for the whole suite."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: on a shared machine a slow example says nothing about the code. A failure prints its blob, so that
# `@reproduce_failure` brings it back.
settings.register_profile("dev", deadline=None, print_blob=True)
# The same examples in every run: what fails in CI fails again at the developer's.
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

# Before anything imports onnxruntime: its telemetry is on by default.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
