"""``tofu schema``: the JSON schema of what --json prints, or of a plan's file."""

from __future__ import annotations

from planner.feature import Feature

FEATURE = Feature(__name__)
