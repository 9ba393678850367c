"""``tofu ops``: operators: coverage, descriptions, strategies, verification."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__,
    outputs=(
        Output("ops", "tofu ops --json", "coverage:Coverage", "table:print_coverage"),
        Output("ops-gradients", "tofu ops --gradients --json", "gradients:GradientTable", "table:print_gradients"),
        Output("ops-operator", "tofu ops OP --json", "page:OperatorPage", "table:print_page"),
        Output("ops-verify", "tofu ops --verify --json", "verification:Verification", "table:print_verification"),
    ),
)
