"""``tofu profile``: what ops take on this machine, measured."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    functions=("profile",),
    outputs=(Output("profile", "tofu profile --json", "result:ProfileResult", "table:print_profile"),),
)
