"""The page beside other tools names schemes that there are, and its pins shard as ZeRO-1 does."""

from __future__ import annotations

import re
from pathlib import Path

import planner
from planner.planning.objective import LITERATURE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "compare-tools.md").read_text()


def test_schemes_are_those_of_compare() -> None:
    named = set(re.findall(r"--strategy ([\w-]+)", TEXT))
    assert len(named) >= 5
    assert named <= set(LITERATURE)
    (count,) = re.findall(r"data parallelism, FSDP, Megatron and (\w+) other", TEXT)
    assert {"data", "fsdp", "megatron"} <= set(LITERATURE)
    assert count == {15: "fifteen", 16: "sixteen", 17: "seventeen"}[len(LITERATURE) - 3]


def test_pins_of_zero_1_shard_gradients_and_updates(tmp_path: Path) -> None:
    pins = dict(pin.split("=") for pin in re.findall(r"--pin '([^']+)'", TEXT))
    assert set(pins.values()) == {"R", "S(0)"}
    model = tmp_path / "model.onnx"
    planner.grad(
        ROOT / "tests" / "models" / "first_plan.onnx", loss="softmax_cross_entropy", optimizer="adam", output=model
    )
    data = planner.plan(model, gpus=2, strategy="data", models=False, out=tmp_path / "data").plan
    plan = planner.plan(model, gpus=2, pin=pins, models=False, out=tmp_path / "zero").plan
    tilings = {name: str(tiling) for name, tiling in plan.tilings.items()}
    for name in ("fc1.weight", "fc2.weight"):
        assert tilings[name] == tilings[f"{name}.next"] == "R/2"
        assert tilings[f"{name}.mean"] == tilings[f"{name}.grad"] == tilings[f"{name}.update.step"] == "S(0)/2"
    assert max(plan.peak_bytes) < max(data.peak_bytes)
    assert plan.moved_bytes <= data.moved_bytes
