"""``tofu ops``: operators: coverage, descriptions, strategies, verification."""

from __future__ import annotations

from planner.feature import Feature, Output

FEATURE = Feature(
    name="ops",
    command="planner.features.ops.command:ops",
    functions={},
    outputs=(
        Output(
            "ops",
            "tofu ops --json",
            "planner.features.ops.coverage:Coverage",
            "planner.features.ops.table:print_coverage",
        ),
        Output(
            "ops-gradients",
            "tofu ops --gradients --json",
            "planner.features.ops.gradients:GradientTable",
            "planner.features.ops.table:print_gradients",
        ),
        Output(
            "ops-onnx-cases",
            "tofu ops --onnx-cases --json",
            "planner.features.ops.conformance:Conformance",
            "planner.features.ops.table:print_conformance",
        ),
        Output(
            "ops-operator",
            "tofu ops OP --json",
            "planner.features.ops.page:OperatorPage",
            "planner.features.ops.table:print_page",
        ),
        Output(
            "ops-verify",
            "tofu ops --verify --json",
            "planner.features.ops.verification:Verification",
            "planner.features.ops.table:print_verification",
        ),
    ),
)
