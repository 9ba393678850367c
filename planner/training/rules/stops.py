"""Operators that no gradient passes: their outputs do not depend smoothly, or not at all, on the values they read."""

from __future__ import annotations

from planner.training.gradients.autodiff import Backward, Contributions, gradient


@gradient(
    "Ceil", "Floor", "Hardmax", "Round", "Sign",  # piecewise constant
    "Bernoulli", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Range",
    inputs=(),
)  # fmt: skip
def stop(context: Backward) -> Contributions:
    """The derivative is 0 almost everywhere."""
    raise AssertionError("an op without inputs that carry gradients has no backward")
