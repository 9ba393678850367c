"""Steps of ResNet-50 and BERT beside PyTorch's, each from PyTorch's own state (tests/tools/torch_references.py).

The built graph in float64 is PyTorch's step in float64. In the stock runtime it is judged by its own float64 twin that
takes the same decisions (``judged_steps``): the error may be four times that of float32 itself, or 64 ulp.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

import judged_steps as judged
from fast_suite import chosen

built = cache(judged.BuiltStep)


@cache
def references(file):
    with np.load(judged.MODELS / "torch" / f"{file}.npz") as arrays:
        return dict(arrays)


def first_step(model, optimizer):
    """Its number; the state before it; what PyTorch has after it in float64, by stride; its noise in float32."""
    steps, step = references("steps"), built(model, optimizer)
    state = {name: np.array(step.first[name]) for name in sorted(kept_state(model, optimizer))}
    sizes = [len(value.reshape(-1)[:: judged.FIRST_STRIDE]) for value in state.values()]
    parts = np.split(steps[f"{model}.{optimizer}.first"], np.cumsum(sizes)[:-1])
    noise = steps[f"{model}.{optimizer}.first.noise"]
    return 0, state, dict(zip(state, parts, strict=True)), noise, judged.FIRST_STRIDE


def kept_step(model, optimizer):
    before, all_of_it = kept_state(model, optimizer), references(f"{model}.{optimizer}")
    exact = {name: all_of_it[f"exact/{name}"] for name in before}
    noise = references("steps")[f"{model}.{optimizer}.kept.noise"]
    return judged.KEPT, before, exact, noise, judged.STRIDE


def kept_state(model, optimizer):
    """The state before the kept step, which is in bfloat16."""
    return {
        name.removeprefix("before/"): (value.astype(np.uint32) << 16).view(np.float32)
        for name, value in references(f"{model}.{optimizer}").items()
        if name.startswith("before/")
    }


@pytest.mark.parametrize(
    ("model", "optimizer", "case"),
    chosen(
        product(judged.NAMES, judged.RATES, [first_step, kept_step]),
        fast=[("bert", "momentum", first_step)],
    ),
)
def test_a_step_is_pytorchs(model, optimizer, case):
    number, state, theirs, noise, stride = case(model, optimizer)
    step = built(model, optimizer)
    assert state.keys() <= {pair.current for pair in step.graph.state}
    feeds = step.feeds(state, number)
    found, exact = step.run(feeds), step.exact(feeds)
    loss = references(f"{model}.{optimizer}")["losses"][number]
    assert found["loss"] == pytest.approx(loss, abs=judged.LOSS_LIMIT, rel=judged.LOSS_LIMIT)

    twins = step.next_states(exact, state)
    noises = {name: judged.Errors(*map(float, own)) for name, own in zip(sorted(state), noise, strict=True)}
    for name, own in noises.items():
        # Exactly 0 but for rounding: the gradient of a key's bias, which a softmax over keys does not see.
        if own.largest < judged.NO_DIGIT:
            error = judged.Errors.of(twins[name].reshape(-1)[::stride], theirs[name].astype(np.float64))
            assert error.largest <= judged.SAME, name
    assert sum(own.largest >= judged.NO_DIGIT for own in noises.values()) <= (6 if model == "bert" else 0)

    turned = step.turned(found, exact)
    assert max(turned, default=0.0) <= judged.TIE_LIMIT
    following = step.next_states(found, state)
    same = step.next_states(step.exact_like(feeds, found), state) if turned else twins
    for name, own in noises.items():
        assert judged.Errors.of(following[name], same[name]).over(own) <= 1, name


@pytest.mark.slow
def test_a_wrong_step_is_seen():
    """A gradient that is 1e-4 off or of the other sign, a decision that is far from a tie."""
    number, state, _, noise, _ = kept_step("resnet50", "adam")
    step = built("resnet50", "adam")
    feeds = step.feeds(state, number)
    found = step.run(feeds)
    name = next(name for name in sorted(state) if name.endswith(".mean"))
    own = judged.Errors(*map(float, noise[sorted(state).index(name)]))
    following = step.next_states(found, [name])[name]
    right = step.next_states(step.exact_like(feeds, found), [name])[name]
    assert judged.Errors.of(following, right).over(own) <= 1
    assert judged.Errors.of(following * np.float32(1 + 1e-3), right).over(own) > 1
    assert judged.Errors.of(-following, right).over(own) > 1
    op = next(op for op in step.deciding if op.op_type == "Greater")
    all_turned = {**found, op.outputs[0]: ~found[op.outputs[0]]}
    assert max(step.turned(all_turned, step.exact(feeds))) > judged.TIE_LIMIT
