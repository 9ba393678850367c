"""Meanings of the data inputs of a training step, in words: what may be fed to each."""

from __future__ import annotations

import json
from collections.abc import Mapping

from planner.graph.core.model import DType, Graph
from planner.training.build import INPUTS


def meanings(step: Graph) -> Mapping[str, str]:
    """By data input of a training step that was built here, what its values are; "" where nothing tells.

    Example: ``labels``: classes 0 to 63, -100 is ignored.
    """
    rules = json.loads(step.notes.get(INPUTS, "{}"))
    states = {pair.current for pair in step.state}
    return {name: _meaning(rules.get(name, {}), step.tensors[name].dtype) for name in step.inputs if name not in states}


def _meaning(rule: Mapping[str, object], dtype: DType) -> str:
    if "value" in rule:
        return f"{rule['value']:g} unless given"
    if rule.get("target"):
        return str(rule["target"])
    if "integers_below" in rule and not rule.get("assumed"):
        last = int(str(rule["integers_below"])) - 1
        kind = "tokens" if rule.get("next") else "classes" if rule.get("labels") else "indices"
        ignored = f", {rule['ignored']} is ignored" if "ignored" in rule else ""
        following = "; the label of each position is the next one, the last has none" if rule.get("next") else ""
        return f"{kind} 0 to {last}{ignored}{following}"
    if dtype is DType.BOOL:
        return "true or false"
    return "data" if dtype.is_float else "integers, of which the model says no bounds" if rule else ""
