"""``tofu doctor``: versions, and whether plans run on this machine's CPU and GPUs."""

from __future__ import annotations

from planner.feature import Feature

FEATURE = Feature(__name__, heading="Run")
