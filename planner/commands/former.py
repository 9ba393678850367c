"""Options as they were spelt until version 0.1, and what to write now; for one release."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

_IN_PYTHON = "it is an option of Python alone: planner.{}"
_PLAN_IT = "write tofu plan MODEL --gpus N -o DIR"

_OF_THE_MODEL = ("--opdefs", "--profile", "--rates", "--state", "--unknown-ops", "--value")
"""The options that a plan's folder stands for in the place of a model."""

_RENAMED: Final[Mapping[str, str]] = {
    "check --annotations": "leave it out: on GitHub Actions it is done by itself",
    **{f"explain --{view}": f"write --view {view}" for view in ("all", "bounds", "memory", "time")},
    "explain --role": "write --view ROLE",
    "explain --op": "write the type where a tensor's name stands: tofu explain DIR Conv",
    "explain --runners-up": _IN_PYTHON.format("why"),
    "export --jax": "write --to jax -o FILE.py",
    "export --placements": "write --to placements -o FILE.py",
    **dict.fromkeys(("fit --plan", "fit --out", "fit --force"), _PLAN_IT),
    "fit --page": "write -o FILE.html",
    "grad --format": _IN_PYTHON.format("grad"),
    "grad --decay-factor": _IN_PYTHON.format("grad"),
    "grad --no-decay": "write --group 'PATTERN:decay=0'",
    "grad --no-decay-vectors": "leave it out: biases and scales of normalisations are not decayed",
    "plan --out": "write -o DIR",
    "plan --inputs": "write --input-tiling",
    "plan --sharding-annotations": "write tofu export DIR --to sharding -o FILE.onnx",
    "plan --device": "leave it out: the plan is the same; tofu run --device cuda says which ops have no CUDA kernel",
    "profile --out": "write -o FILE",
    "prove --whole": "write --model FILE --parts FILE...",
    "report --svg": "write -o FILE.svg",
    "report --trace": "write -o FILE.json",
    "run --result": "write -o FILE.npz",
    "run --export": "write -o FILE.safetensors, or -o FILE.onnx with --forward",
    "run --log": "write -o FILE.csv or -o FILE.jsonl",
    "run --random-weights": "write --weights random",
    "run --map": "write --device cuda:N,N,...",
    "run --profile": "write --measure",
}
"""The hints, by command and former option."""


def former(command: str, option: str, of_plan: Container[str], of_grad: Container[str]) -> str:
    """The hint for an option that a command had; "" if it never had it.

    Args:
        command: its name.
        option: as it was written.
        of_plan: the options of ``tofu plan``, which plans remember.
        of_grad: the options of ``tofu grad``, whose training graphs ``tofu fit`` takes.
    """
    if hint := _RENAMED.get(f"{command} {option}"):
        return hint
    if command in ("check", "compare", "fit", "profile") and option in of_plan:
        if option not in _OF_THE_MODEL:
            return f"leave it out: {option} is for `tofu plan` alone"
        return f"write {option} to `tofu plan`, and name the plan's folder in the place of the model"
    if command == "fit" and option in of_grad:
        return f"`tofu fit` takes a training graph: write {option} to `tofu grad MODEL -o train.onnx`, then fit that"
    if command in ("build", "diff", "explain", "export", "prove", "report", "run") and option in of_plan:
        return "leave it out: a plan remembers it"
    return ""
