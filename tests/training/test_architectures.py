"""The nine architectures of the onnx package become training graphs whose gradients agree with a difference."""

from __future__ import annotations

from itertools import product

import pytest

import architectures
from fast_suite import chosen
from planner.graph.reading.from_onnx import read_model
from planner.training.batch.change import with_batch

FAST = [("light_squeezenet", None)]
BY_NIGHT = [
    *(("light_vgg19", None), ("light_vgg19", 8), ("light_inception_v1", 8), ("light_inception_v2", 8)),
    *(("light_zfnet512", 8), ("light_densenet121", 8), ("light_resnet50", 8)),
]
"""Each takes up to two minutes of the processor; CI runs the others."""


def test_there_are_nine():
    assert len(architectures.NAMES) == 9


MOVED = {("light_densenet121", 8): 3e-4}
"""Where the loss has so many kinks that a smaller step tells more."""


@pytest.mark.parametrize(("name", "batch"), chosen(product(architectures.NAMES, [None, 8]), FAST, BY_NIGHT))
def test_gradients_agree_with_a_difference(name, batch):
    row = architectures.check(name, batch, MOVED.get((name, batch), architectures.STEP))
    assert row["derivative"] > 0
    # The loss of these networks has many kinks, and its curvature is large at a batch of 1.
    assert row["difference"] == pytest.approx(row["derivative"], rel=0.05)


@pytest.mark.parametrize("name", architectures.NAMES)
def test_every_one_takes_another_batch(name):
    graph = architectures.at_logits(read_model(architectures.FOLDER / f"{name}.onnx"))
    changed = with_batch(graph, 8)
    (output,) = changed.outputs
    assert changed.tensors[output].shape[0] == 8
    assert len(changed.ops) == len(graph.ops)
