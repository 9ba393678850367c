"""Drawn flat training steps: weights with states of many forms, each input and output under a name that tells nothing.

A step has one or two layers and the gradients of their weights; each weight is updated by a form that is drawn, and
forms beside it keep states of their own. Inputs, outputs and names are shuffled, so that the graph alone tells which
output is the next value of which input. ``drawn(seed)`` gives the model and the pairs that are meant.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import onnx


@dataclass
class Drawn:
    """A step that is being drawn."""

    rng: random.Random
    inputs: dict[str, str] = field(default_factory=dict)
    """Type by name."""
    outputs: dict[str, str] = field(default_factory=dict)
    pairs: dict[str, str] = field(default_factory=dict)
    """Next state by state."""
    nodes: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    forms: list[str] = field(default_factory=list)
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def of(self, expression: str, *operands: str) -> str:
        """A node: ``of("Sub", a, b)``, with attributes ``of("Cast <to = 1>", a)``."""
        made = self.name()
        self.nodes.append(f"{made} = {expression} ({', '.join(operands)})")
        return made

    def input(self, kind: str) -> str:
        made = self.name()
        self.inputs[made] = kind
        return made

    def number(self, value: float, kind: str = "float") -> str:
        """A constant; of floats one in four is an input instead, as a rate that is scheduled outside."""
        made = self.name()
        if kind == "float" and self.rng.random() < 0.04:
            self.inputs[made] = "float"
        else:
            self.constants[made] = f"{kind} {made} = {{{value}}}"
        return made

    def ints(self, value: int) -> str:
        made = self.name()
        self.constants[made] = f"int64[1] {made} = {{{value}}}"
        return made

    def state(self, kind: str) -> str:
        return self.input(kind)

    def next(self, current: str, made: str) -> str:
        """Gives back what replaces a state, under a name of its own if it is already an output or an input."""
        if made in self.outputs or made in self.inputs or made not in {node.split(" ", 1)[0] for node in self.nodes}:
            made = self.of("Identity", made)
        self.outputs[made] = self.inputs[current]
        self.pairs[current] = made
        return made

    def result(self, made: str, kind: str) -> None:
        if made not in self.outputs:
            self.outputs[made] = kind

    def scaled(self, name: str, value: float) -> str:
        return self.of("Mul", name, self.number(value)) if self.rng.random() < 0.7 else self._scaled_left(name, value)

    def _scaled_left(self, name: str, value: float) -> str:
        return self.of("Mul", self.number(value), name)

    def average(self, old: str, new: str, keep: float) -> str:
        return self.of("Add", self.scaled(old, keep), self.scaled(new, 1 - keep))

    def all(self, reduce: str, name: str) -> str:
        return self.of(f"{reduce} <keepdims = 0>", name)


Form = Callable[[Drawn, str, str, str], str]
"""``form(step, weight, gradient, kind)``: what is subtracted from the weight, before its rate."""


def ema(s: Drawn, w: str, g: str, kind: str) -> str:
    m = s.state(kind)
    return s.next(m, s.average(m, g, s.rng.choice([0.9, 0.5, 0.3, 0.05])))


def squares(s: Drawn, w: str, g: str, kind: str) -> str:
    v = s.state(kind)
    v2 = s.next(v, s.average(v, s.of("Mul", g, g), 0.99))
    return s.of("Div", g, s.of("Add", s.of("Sqrt", v2), s.number(1e-6)))


def adagrad(s: Drawn, w: str, g: str, kind: str) -> str:
    v = s.state(kind)
    v2 = s.next(v, s.of("Add", v, s.of("Mul", g, g)))
    return s.of("Div", g, s.of("Sqrt", v2))


def running_max(s: Drawn, w: str, g: str, kind: str) -> str:
    v = s.state(kind)
    v2 = s.next(v, s.of("Max", s.scaled(v, 0.99), s.of("Abs", g)))
    return s.of("Div", g, v2)


def previous_gradient(s: Drawn, w: str, g: str, kind: str) -> str:
    old = s.state(kind)
    s.next(old, g)
    return s.of("Add", g, s.scaled(s.of("Sub", g, old), 0.5))


def adan(s: Drawn, w: str, g: str, kind: str) -> str:
    old, m, d, n = (s.state(kind) for _ in range(4))
    change = s.of("Sub", g, old)
    s.next(old, g)
    m2, d2 = s.next(m, s.average(m, g, 0.98)), s.next(d, s.average(d, change, 0.92))
    wide = s.of("Add", g, s.scaled(change, 0.92))
    n2 = s.next(n, s.average(n, s.of("Mul", wide, wide), 0.99))
    return s.of("Div", s.of("Add", m2, d2), s.of("Sqrt", n2))


def previous_weight(s: Drawn, w: str, g: str, kind: str) -> str:
    old = s.state(kind)
    s.next(old, w)
    return s.of("Sub", g, s.scaled(s.of("Sub", w, old), 0.9))


def sign_momentum(s: Drawn, w: str, g: str, kind: str) -> str:
    m = s.state(kind)
    u = s.of("Sign", s.average(m, g, 0.9))
    s.next(m, s.average(m, g, 0.99))
    return u


def quantised(s: Drawn, w: str, g: str, kind: str) -> str:
    m8, scale = s.state(kind.replace("float", "int8")), s.state("float")
    m = s.average(s.of("Mul", s.of("Cast <to = 1>", m8), scale), g, 0.9)
    scale2 = s.next(scale, s.of("Div", s.all("ReduceMax", s.of("Abs", m)), s.number(127)))
    s.next(m8, s.of("Cast <to = 3>", s.of("Round", s.of("Div", m, scale2))))
    return m


def signs(s: Drawn, w: str, g: str, kind: str) -> str:
    m = s.state(kind.replace("float", "int8"))
    wide = s.average(s.of("Cast <to = 1>", m), g, 0.9)
    s.next(m, s.of("Cast <to = 3>", s.of("Sign", wide)))
    return wide


def feedback(s: Drawn, w: str, g: str, kind: str) -> str:
    e = s.state(kind)
    both = s.of("Add", g, e)
    sent = s.of("Sign", both)
    s.next(e, s.of("Sub", both, sent))
    return sent


def mask(s: Drawn, w: str, g: str, kind: str) -> str:
    m = s.state(kind.replace("float", "bool"))
    s.next(m, s.of("Greater", s.of("Abs", s.of("Sub", w, s.scaled(g, 0.1))), s.number(0.01)))
    return s.of("Where", m, g, s.number(0))


def data_mask(s: Drawn, w: str, g: str, kind: str) -> str:
    return s.of("Mul", g, s.input(kind))


def noise(s: Drawn, w: str, g: str, kind: str) -> str:
    return s.of("Add", g, s.scaled(s.input(kind), 0.01))


def preconditioner(s: Drawn, w: str, g: str, kind: str) -> str:
    rows, _ = sizes(kind)
    left = s.state(f"float[{rows},{rows}]")
    s.next(left, s.average(left, s.of("MatMul", g, s.of("Transpose <perm = [1, 0]>", g)), 0.95))
    root = s.state(f"float[{rows},{rows}]")
    u = s.of("MatMul", root, g)
    product = s.of("MatMul", s.of("MatMul", root, s.pairs[left]), root)
    s.next(root, s.of("Sub", s.scaled(root, 1.5), s.scaled(product, 0.5)))
    return u


def factor(s: Drawn, w: str, g: str, kind: str) -> str:
    """PowerSGD's."""
    q = s.state(f"float[{sizes(kind)[1]},2]")
    p = s.of("MatMul", g, q)
    q2 = s.next(q, s.of("MatMul", s.of("Transpose <perm = [1, 0]>", g), p))
    return s.of("MatMul", p, s.of("Transpose <perm = [1, 0]>", q2))


def loss_scale(s: Drawn, w: str, g: str, kind: str) -> str:
    scale, good = s.state("float"), s.state("int64")
    bad = s.of("IsNaN", s.all("ReduceSum", s.of("Mul", g, scale)))
    up, zero = s.of("Add", good, s.number(1, "int64")), s.number(0, "int64")
    grow = s.of("GreaterOrEqual", up, s.number(100, "int64"))
    larger = s.of("Where", grow, s.scaled(scale, s.rng.choice([2, 4])), scale)
    s.next(scale, s.of("Where", bad, s.scaled(scale, 0.5), larger))
    s.next(good, s.of("Where", s.of("Or", bad, grow), zero, up))
    return s.of("Div", s.of("Mul", g, scale), scale)


def count(s: Drawn, w: str, g: str, kind: str) -> str:
    n = s.state("int64")
    n2 = s.next(n, s.of("Add", n, s.number(1, "int64")))
    return s.of("Div", g, s.of("Sqrt", s.of("Cast <to = 1>", n2)))


def power_of_beta(s: Drawn, w: str, g: str, kind: str) -> str:
    b = s.state("float")
    b2 = s.next(b, s.scaled(b, 0.9))
    return s.of("Div", g, s.of("Sub", s.number(1), b2))


def odd_scalar(s: Drawn, w: str, g: str, kind: str) -> str:
    r = s.state("float")
    s.next(r, s.of("Sqrt", s.of("Add", s.of("Mul", r, r), s.number(1))))
    return s.of("Div", g, r)


def clipped_norm(s: Drawn, w: str, g: str, kind: str) -> str:
    norm = s.all("ReduceL2", g)
    old = s.state("float")
    new = s.next(old, s.average(old, norm, 0.9))
    if s.rng.random() < 0.5:
        s.result(norm, "float")
    return s.of("Mul", g, s.of("Min", s.of("Div", new, norm), s.number(1)))


def previous_norm(s: Drawn, w: str, g: str, kind: str) -> str:
    old = s.state("float")
    norm = s.next(old, s.all("ReduceL2", g))
    return s.of("Mul", g, s.of("Div", old, norm))


def log_of_squares(s: Drawn, w: str, g: str, kind: str) -> str:
    v = s.state(kind)
    wide = s.of("Add", s.scaled(s.of("Exp", v), 0.9), s.of("Mul", g, g))
    v2 = s.next(v, s.of("Log", wide))
    return s.of("Mul", g, s.of("Exp", s.of("Neg", v2)))


def squashed(s: Drawn, w: str, g: str, kind: str) -> str:
    v = s.state(kind)
    return s.next(v, s.of("Tanh", s.of("Add", s.scaled(v, 0.8), g)))


def products(s: Drawn, w: str, g: str, kind: str) -> str:
    """Rates of their own, which grow and shrink by a power of e."""
    rate, old = s.state(kind), s.state(kind)
    agree = s.of("Mul", g, old)
    s.next(old, g)
    rate2 = s.next(rate, s.of("Mul", rate, s.of("Exp", s.scaled(s.of("Sign", agree), 0.1))))
    return s.of("Mul", g, rate2)


def accumulated(s: Drawn, w: str, g: str, kind: str) -> str:
    acc, n = s.state(kind), s.state("int64")
    up = s.of("Add", n, s.number(1, "int64"))
    full = s.of("Equal", s.of("Mod", up, s.number(4, "int64")), s.number(0, "int64"))
    total, none = s.of("Add", acc, g), s.scaled(g, 0)
    s.next(n, up)
    s.next(acc, s.of("Where", full, none, total))
    return s.of("Where", full, total, none)


def dual(s: Drawn, w: str, g: str, kind: str) -> str:
    z, u = s.state(kind), s.state(kind)
    w2 = s.of("Sub", w, s.scaled(s.of("Add", g, s.of("Sub", w, s.of("Sub", z, u))), 0.1))
    both = s.of("Add", w2, u)
    z2 = s.next(z, s.of("Mul", s.of("Sign", both), s.of("Relu", s.of("Sub", s.of("Abs", both), s.number(0.01)))))
    s.next(u, s.of("Sub", both, z2))
    return s.of("Add", g, s.of("Sub", w, s.of("Sub", z, u)))


def register(s: Drawn, w: str, g: str, kind: str) -> str:
    first, second = s.state(kind), s.state(kind)
    s.next(first, second)
    s.next(second, g)
    return s.of("Add", g, s.of("Add", s.scaled(first, 0.1), s.scaled(second, 0.2)))


def row_sums(s: Drawn, w: str, g: str, kind: str) -> str:
    rows, columns = sizes(kind)
    r, c = s.state(f"float[{rows},1]"), s.state(f"float[1,{columns}]")
    square = s.of("Mul", g, g)
    r2 = s.next(r, s.average(r, s.of("ReduceMean <keepdims = 1>", square, s.ints(1)), 0.9))
    c2 = s.next(c, s.average(c, s.of("ReduceMean <keepdims = 1>", square, s.ints(0)), 0.9))
    return s.of("Div", g, s.of("Sqrt", s.of("Mul", r2, c2)))


def key(s: Drawn, w: str, g: str, kind: str) -> str:
    k = s.state("uint32[2]")
    shifted = s.of('BitShift <direction = "LEFT">', k, s.number(3, "uint32"))
    s.next(k, s.of("BitwiseXor", k, shifted))
    return g


def tally(s: Drawn, w: str, g: str, kind: str) -> str:
    """How often an element's gradient was positive."""
    n = s.state(kind.replace("float", "int32"))
    n2 = s.next(n, s.of("Add", n, s.of("Cast <to = 6>", s.of("Greater", g, s.number(0)))))
    return s.of("Div", g, s.of("Add", s.of("Cast <to = 1>", n2), s.number(1)))


DIRECTIONS: tuple[Form, ...] = (
    ema, squares, adagrad, running_max, previous_gradient, adan, previous_weight, sign_momentum, quantised, signs,
    feedback, mask, data_mask, noise, preconditioner, factor, loss_scale, count, power_of_beta, odd_scalar,
    clipped_norm, previous_norm, log_of_squares, squashed, products, accumulated, dual, register, row_sums, key, tally,
)  # fmt: skip


def plain(s: Drawn, w: str, u: str, kind: str) -> None:
    s.next(w, s.of("Sub", w, s.scaled(u, 0.1)))


def added(s: Drawn, w: str, u: str, kind: str) -> None:
    s.next(w, s.of("Add", s.scaled(u, -0.1), w))


def decayed(s: Drawn, w: str, u: str, kind: str) -> None:
    s.next(w, s.of("Sub", s.scaled(w, 0.999), s.scaled(u, 0.1)))


def averaged(s: Drawn, w: str, u: str, kind: str) -> None:
    slow, w2 = s.state(kind), s.of("Sub", w, s.scaled(u, 0.1))
    s.next(slow, s.average(slow, w2, s.rng.choice([0.999, 0.5, 0.2])))
    s.next(w, w2)


def lookahead(s: Drawn, w: str, u: str, kind: str) -> None:
    slow, n = s.state(kind), s.state("int64")
    up = s.of("Add", n, s.number(1, "int64"))
    sync = s.of("Equal", s.of("Mod", up, s.number(5, "int64")), s.number(0, "int64"))
    fast = s.of("Sub", w, s.scaled(u, 0.1))
    slow2 = s.of("Where", sync, s.of("Add", slow, s.scaled(s.of("Sub", fast, slow), 0.5)), slow)
    s.next(n, up)
    s.next(w, s.of("Where", sync, slow2, fast))
    s.next(slow, slow2)


def schedule_free(s: Drawn, w: str, u: str, kind: str) -> None:
    z, a, k = s.state(kind), s.state(kind), s.state("float")
    z2, k2 = s.next(z, s.of("Sub", z, s.scaled(u, 0.1))), s.next(k, s.of("Add", k, s.number(1)))
    weight = s.of("Div", s.number(1), k2)
    kept = s.of("Mul", a, s.of("Sub", s.number(1), weight))
    a2 = s.next(a, s.of("Add", kept, s.of("Mul", z2, weight)))
    s.next(w, s.of("Add", s.scaled(z2, 0.1), s.scaled(a2, 0.9)))


def soft_threshold(s: Drawn, w: str, u: str, kind: str) -> None:
    n = s.of("Sub", w, s.scaled(u, 0.1))
    s.next(w, s.of("Mul", s.of("Sign", n), s.of("Relu", s.of("Sub", s.of("Abs", n), s.number(0.01)))))


def projected(s: Drawn, w: str, u: str, kind: str) -> None:
    n = s.of("Sub", w, s.scaled(u, 0.1))
    s.next(w, s.of("Div", n, s.of("Max", s.all("ReduceL2", n), s.number(1))))


def exponentiated(s: Drawn, w: str, u: str, kind: str) -> None:
    s.next(w, s.of("Mul", w, s.of("Exp", s.scaled(u, -0.1))))


def rotated(s: Drawn, w: str, u: str, kind: str) -> None:
    """(1 - r A) w with A = u w^T: no element of the weight is kept by itself."""
    a = s.of("MatMul", u, s.of("Transpose <perm = [1, 0]>", w))
    one = s.of("EyeLike", a)
    s.next(w, s.of("MatMul", s.of("Sub", one, s.scaled(a, 0.1)), w))


def master(s: Drawn, w: str, u: str, kind: str) -> None:
    wide = s.state(kind)
    wide2 = s.next(wide, s.of("Sub", wide, s.scaled(u, 0.1)))
    s.next(w, s.of("Cast <to = 1>", s.of("Cast <to = 10>", wide2)))


def snapshots(s: Drawn, w: str, u: str, kind: str) -> None:
    """The weight and the one before it."""
    old = s.state(kind)
    s.next(old, w)
    s.next(w, s.of("Sub", s.scaled(s.of("Sub", s.scaled(w, 2), old), 1), s.scaled(u, 0.1)))


def mirror(s: Drawn, w: str, u: str, kind: str) -> None:
    """Steps are taken in a dual variable, and the weight is a function of it alone."""
    y = s.state(kind)
    y2 = s.next(y, s.of("Sub", y, s.scaled(u, 0.1)))
    s.next(w, s.of("Tanh", y2))


UPDATES = (
    plain, plain, plain, added, decayed, averaged, lookahead, schedule_free, soft_threshold, projected, exponentiated,
    rotated, master, snapshots, mirror,
)  # fmt: skip


def previous_loss(s: Drawn, loss: str) -> None:
    old = s.state("float")
    s.result(s.of("Less", loss, old), "bool")
    s.next(old, loss)


def best_loss(s: Drawn, loss: str) -> None:
    best = s.state("float")
    s.next(best, s.of("Min", best, loss))


def plateau(s: Drawn, loss: str) -> None:
    """A rate that is halved while the loss does not fall."""
    best, rate, bad = s.state("float"), s.state("float"), s.state("int32")
    is_better = s.of("Less", loss, best)
    s.next(best, s.of("Where", is_better, loss, best))
    up = s.of("Where", is_better, s.number(0, "int32"), s.of("Add", bad, s.number(1, "int32")))
    s.next(bad, up)
    s.next(rate, s.of("Where", s.of("Greater", up, s.number(9, "int32")), s.scaled(rate, 0.5), rate))


def finished(s: Drawn, loss: str) -> None:
    done = s.state("bool")
    s.next(done, s.of("Or", done, s.of("Less", loss, s.number(0.01))))


SCALARS = (previous_loss, best_loss, plateau, finished)


def sizes(kind: str) -> tuple[int, int]:
    rows, columns = re.findall(r"\d+", kind.partition("[")[2])
    return int(rows), int(columns)


def normalised(s: Drawn, x: str, width: int) -> str:
    """Running moments of the data, old or new ones."""
    mean, square, n = s.state(f"float[{width}]"), s.state(f"float[{width}]"), s.state("float")
    batch = s.of("ReduceMean <keepdims = 0>", x, s.ints(0))
    n2 = s.next(n, s.of("Add", n, s.number(8)))
    change = s.of("Sub", batch, mean)
    mean2 = s.next(mean, s.of("Add", mean, s.of("Div", s.scaled(change, 8), n2)))
    centred = s.of("Sub", x, batch)
    spread = s.of("ReduceSum <keepdims = 0>", s.of("Mul", centred, centred), s.ints(0))
    extra = s.of("Div", s.scaled(s.of("Mul", s.of("Mul", change, change), n), 8), n2)
    square2 = s.next(square, s.of("Add", s.of("Add", square, spread), extra))
    by = (mean2, square2, n2) if s.rng.random() < 0.6 else (mean, square, n)
    root = s.of("Sqrt", s.of("Add", s.of("Div", by[1], by[2]), s.number(1e-5)))
    return s.of("Div", s.of("Sub", x, by[0]), root)


def drawn(seed: int) -> tuple[onnx.ModelProto, dict[str, str], list[str]]:
    """A step, its true pairs (next state by state), and the names of its forms."""
    rng = random.Random(seed)
    s = Drawn(rng)
    width, middle, wide = rng.choice([(4, 3, 5), (4, 4, 4), (6, 4, 2)])
    x = a = s.input(f"float[8,{width}]")
    t = s.input(f"float[8,{wide}]")
    if rng.random() < 0.25:
        s.forms.append("normalised")
        x = a = normalised(s, x, width)
    weights = [(s.input(f"float[{m},{n}]"), f"float[{m},{n}]") for m, n in ((width, middle), (middle, wide))]
    (w1, _), (w2, _) = weights
    h = s.of("MatMul", a, w1)
    first = s.of("Tanh", h)
    y = s.of("MatMul", first, w2)
    back = s.of("Sub", y, t)
    act = s.of("Tanh", h) if rng.random() < 0.1 else first
    loss = s.all("ReduceMean", s.of("Mul", back, back))
    g2 = s.of("MatMul", s.of("Transpose <perm = [1, 0]>", act), back)
    down = s.of("MatMul", back, s.of("Transpose <perm = [1, 0]>", w2))
    slope = s.of("Sub", s.number(1), s.of("Mul", act, act))
    g1 = s.of("MatMul", s.of("Transpose <perm = [1, 0]>", a), s.of("Mul", down, slope))
    for (w, kind), g in zip(weights, (g1, g2), strict=True):
        u = g
        for direction in rng.sample(DIRECTIONS, rng.choice([1, 1, 2, 3])):
            s.forms.append(direction.__name__)
            u = direction(s, w, u, kind)
        update = rng.choice(UPDATES)
        s.forms.append(update.__name__)
        update(s, w, u, kind)
    if rng.random() < 0.8:
        s.result(loss, "float")
    if rng.random() < 0.3:
        scalar = rng.choice(SCALARS)
        s.forms.append(scalar.__name__)
        scalar(s, loss)
    if rng.random() < 0.2:
        s.result(y, f"float[8,{wide}]")
    return written(s)


def written(s: Drawn) -> tuple[onnx.ModelProto, dict[str, str], list[str]]:
    """The model, shuffled and renamed."""
    rng = s.rng
    inputs, outputs, names = list(s.inputs), list(s.outputs), [f"t{number}" for number in range(1, s.count + 1)]
    rng.shuffle(inputs)
    rng.shuffle(outputs)
    codes = rng.sample(range(100, 100 + 4 * s.count), s.count)
    new = dict(zip(names, (f"v{code}" for code in codes), strict=True))
    heads = [
        ", ".join(f"{kinds[name]} {name}" for name in some)
        for some, kinds in ((inputs, s.inputs), (outputs, s.outputs))
    ]
    constants = f"<{', '.join(s.constants.values())}>" if s.constants else ""
    text = f"step ({heads[0]}) => ({heads[1]}) {constants} {{ {' '.join(s.nodes)} }}"
    text = re.sub(r"\bt\d+\b", lambda match: new[match.group()], text)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    return model, {new[current]: new[following] for current, following in s.pairs.items()}, s.forms
