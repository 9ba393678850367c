"""``tofu profile``: what ops take on this machine, measured."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="profile",
    command="planner.features.profile.command:profile",
    functions={"profile": "planner.features.profile.run:profile"},
    outputs=(
        Output(
            "profile",
            "tofu profile --json",
            "planner.features.profile.result:ProfileResult",
            "planner.features.profile.table:print_profile",
        ),
    ),
)
