"""LSTM, GRU and RNN in NumPy, for any floating point.

ONNX's reference evaluator knows neither lengths of sequences nor thresholds nor other activations, and takes no notice
of them. Gates and equations are those of the ONNX operators; ``layout`` is 0, as the stock runtime has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from planner.graph.core.model import Op
from planner.graph.core.traits import RECURRENT
from planner.runtime.judge.kernel_arguments import Arrays, OtherFormError

_Activation: TypeAlias = Callable[[np.ndarray], np.ndarray]

_ACTIVATIONS: Final[Mapping[str, _Activation]] = {
    "elu": lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0))),
    "hardsigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "leakyrelu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanh": np.tanh,
}


def recurrent(op: Op, inputs: Arrays) -> tuple[np.ndarray, ...]:
    """Y, Y_h and, of an LSTM, Y_c.

    Raises:
        OtherFormError: activations with parameters of their own, or another layout.
    """
    if op.attribute("layout", 0) or op.attribute("activation_alpha") or op.attribute("activation_beta"):
        raise OtherFormError("layout 1, or activations with parameters")
    absent: Arrays = (None,) * (8 - len(inputs))
    x, w, r, b, lengths, h, c, p = [*inputs, *absent]
    assert x is not None
    assert w is not None
    assert r is not None
    steps, batch = x.shape[:2]
    directions, _, hidden = r.shape
    if lengths is None:
        lengths = np.full(batch, steps)
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    named = op.attribute("activations") or RECURRENT[op.op_type].activations * directions
    assert isinstance(named, tuple)
    count = len(RECURRENT[op.op_type].activations)
    y = np.zeros((steps, directions, batch, hidden))
    last = np.zeros((2, directions, batch, hidden))
    for d, is_backward in enumerate(backwards[str(op.attribute("direction", "forward"))]):
        bias = np.zeros((2, RECURRENT[op.op_type].gates * hidden)) if b is None else b[d].reshape(2, -1)
        cell = _Cell(op, w[d], r[d], bias, p if p is None else p[d], _activations(named[d * count : (d + 1) * count]))
        state = [np.zeros((batch, hidden)) if first is None else first[d] for first in (h, c)]
        for step in range(steps):
            alive = step < lengths
            # A sequence is turned round within its own length.
            place = np.where(alive, lengths - 1 - step, 0) if is_backward else np.full(batch, step)
            rows = np.arange(batch)
            following = cell.step(x[place, rows], *state)
            state = [np.where(alive[:, None], after, before) for after, before in zip(following, state, strict=True)]
            y[place[alive], d, rows[alive]] = state[0][alive]
        # Of an empty sequence the stock runtime makes zeros, whatever it starts from.
        last[:, d] = np.where(lengths[:, None] > 0, state, 0.0)
    return (y, last[0], last[1])[: 3 if op.op_type == "LSTM" else 2]


def _activations(names: Sequence[object]) -> list[_Activation]:
    lower = [str(name).lower() for name in names]
    unknown = sorted(set(lower) - _ACTIVATIONS.keys())
    if unknown:
        raise OtherFormError(f"activation {unknown[0]}")
    return [_ACTIVATIONS[name] for name in lower]


class _Cell:
    """One direction's weights, and its equations."""

    def __init__(
        self,
        op: Op,
        w: np.ndarray,
        r: np.ndarray,
        bias: np.ndarray,
        peepholes: np.ndarray | None,
        activations: Sequence[_Activation],
    ) -> None:
        self._op, self._w, self._r, self._bias, self._activations = op, w, r, bias, activations
        self._peepholes = np.zeros(3 * r.shape[1]) if peepholes is None else peepholes
        clip = op.attribute("clip")
        assert clip is None or isinstance(clip, int | float)
        self._clip = np.inf if clip is None else float(clip)

    def step(self, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The next hidden state, and the next cell state, which only an LSTM has."""
        match self._op.op_type:
            case "LSTM":
                return self._lstm(x, h, c)
            case "GRU":
                return self._gru(x, h), c
        (f,) = self._activations
        return f(self._clipped(x @ self._w.T + h @ self._r.T + self._bias.sum(axis=0))), c

    def _clipped(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(x, -self._clip, self._clip))

    def _lstm(self, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f, g, last = self._activations
        peep_i, peep_o, peep_f = np.split(self._peepholes, 3)
        i, o, forget, candidate = np.split(x @ self._w.T + h @ self._r.T + self._bias.sum(axis=0), 4, axis=1)
        i = f(self._clipped(i + peep_i * c))
        forget = 1 - i if self._op.attribute("input_forget", 0) else f(self._clipped(forget + peep_f * c))
        c = forget * c + i * g(self._clipped(candidate))
        # The stock runtime leaves the cell's own state as it is.
        return np.asarray(f(self._clipped(o + peep_o * c)) * last(c)), c

    def _gru(self, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        f, g = self._activations
        of_x = np.split(x @ self._w.T + self._bias[0], 3, axis=1)
        weights, biases = np.split(self._r, 3), np.split(self._bias[1], 3)
        z, reset = (
            f(self._clipped(mine + h @ weight.T + bias))
            for mine, weight, bias in zip(of_x[:2], weights, biases, strict=False)
        )
        if self._op.attribute("linear_before_reset", 0):
            of_h = reset * (h @ weights[2].T + biases[2])
        else:
            of_h = (reset * h) @ weights[2].T + biases[2]
        return np.asarray((1 - z) * g(self._clipped(of_x[2] + of_h)) + z * h)
