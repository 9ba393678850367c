"""One network costs the same in whichever way it is written: the table of ``bench/twins.py``, and what it draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from drawn_twins import drawn
from onnx import ModelProto, checker, helper
from twins import GROUPS, measured

from fast_suite import chosen

DEARER = ("3x3", "experts, step", "tokens, step", "grouped, step")
"""Groups of the table whose spellings cost different amounts so far."""
RUN = ("put together", "identity")
SLOW = ("put together", "identity", "cache", "sums of rows")


def _outputs(model: ModelProto) -> list[np.ndarray]:
    """What the stock runtime makes of drawn inputs."""
    rng, known = np.random.default_rng(0), {one.name for one in model.graph.initializer}
    given = {}
    for value in model.graph.input:
        if value.name not in known:
            tensor = value.type.tensor_type
            dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.elem_type), [d.dim_value for d in tensor.shape.dim]
            made = rng.normal(size=shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
            given[value.name] = made.astype(dtype)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run([one.name for one in model.graph.output], given)


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.nightly)])
def test_a_rewritten_network_computes_the_same(count: int) -> None:
    pairs = list(drawn(count, seed=7))
    assert len(pairs) == count
    for name, _, models in pairs:
        before, after = models.values()
        checker.check_model(after, full_check=True)
        assert before.graph != after.graph
        for one, other in zip(_outputs(before), _outputs(after), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3, err_msg=f"{name}: {[*models]}")


@pytest.mark.parametrize(("count", "workers"), [(3, [4]), pytest.param(40, [2, 4, 8], marks=pytest.mark.nightly)])
def test_a_rewritten_network_costs_the_same(count: int, workers: list[int], tmp_path: Path) -> None:
    ratios = {}
    for name, is_step, models in drawn(count, seed=0):
        for row in measured(models.items(), workers, tmp_path, is_step=is_step, runs=False):
            ratios[len(ratios), name, row.spelling] = max(row.ratios)
    assert len(ratios) == 2 * count
    assert not {told: ratio for told, ratio in ratios.items() if ratio > 1.10}


@pytest.mark.parametrize(
    "name",
    chosen(sorted(GROUPS.keys() - set(DEARER)), ["halves"], sorted(GROUPS.keys() - {"halves", *DEARER, *SLOW})),
)
def test_all_spellings_of_a_network_cost_the_same(name: str, tmp_path: Path) -> None:
    built = ((spelling, build().model()) for spelling, build in GROUPS[name].items())
    rows = measured(built, [8], tmp_path, is_step=name.endswith(", step"), runs=name in RUN)
    assert len(rows) == len(GROUPS[name]) > 1
    assert not [row for row in rows if max(row.ratios) > 1.05 or row.verdict not in ("", "right")]
