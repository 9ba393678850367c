"""The forward models of tests/models computed by PyTorch, op by op, and trained by its own optimizers."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- as everybody calls it

from judged_steps import BATCH, EPS, MODELS, NO_DIGIT, RATES, RUNS, Errors, data
from planner.graph.core.model import Graph, Op
from planner.graph.reading.from_onnx import read_model
from planner.training.batch.change import with_batch

Tensors = dict[str, torch.Tensor]


def compute(op: Op, graph: Graph, values: Tensors, decisions: Tensors | None) -> torch.Tensor:
    """The first output of one op."""
    x = [values[name] if name else None for name in op.inputs]
    attributes = dict(op.attributes)
    ints = [None if name not in graph.constants or graph.tensors[name].dtype.is_float
            else [int(item) for item in graph.constants[name].reshape(-1)] for name in op.inputs]  # fmt: skip
    match op.op_type:
        case "Conv":
            pads = attributes.get("pads", (0, 0, 0, 0))
            padded = F.pad(x[0], (pads[1], pads[3], pads[0], pads[2]))
            return F.conv2d(padded, x[1], x[2] if len(x) > 2 else None, attributes.get("strides", (1, 1)), 0,
                            attributes.get("dilations", (1, 1)), attributes.get("group", 1))  # fmt: skip
        case "BatchNormalization":
            return F.batch_norm(x[0], None, None, x[1], x[2], True, 0.0, attributes.get("epsilon", 1e-5))
        case "MaxPool":
            sizes = attributes["kernel_shape"], attributes["strides"], attributes["pads"][:2]
            own = F.max_pool2d(x[0].detach(), *sizes, return_indices=True)[1]
            picked = own if decisions is None else decisions.setdefault(op.name, own)
            return x[0].flatten(2).gather(2, picked.flatten(2)).reshape(picked.shape)
        case "Relu":
            own = x[0].detach() > 0
            return torch.where(own if decisions is None else decisions.setdefault(op.name, own), x[0], 0.0)
        case "LayerNormalization":
            return F.layer_norm(x[0], x[1].shape, x[1], x[2], attributes.get("epsilon", 1e-5))
        case "ReduceMean":
            return x[0].mean(ints[1], keepdim=bool(attributes.get("keepdims", 1)))
        case "Gemm":
            a, b = (operand.T if attributes.get(f"trans{letter}") else operand
                    for operand, letter in zip(x[:2], "AB", strict=True))  # fmt: skip
            return attributes.get("alpha", 1.0) * (a @ b) + attributes.get("beta", 1.0) * x[2]
        case "Gather":
            axis = attributes.get("axis", 0)
            picked = torch.index_select(x[0], axis, x[1].reshape(-1))
            return picked.reshape(*x[0].shape[:axis], *x[1].shape, *x[0].shape[axis + 1 :])
        case "GatherND":
            return x[0][tuple(x[1].unbind(-1))]
        case "Cast":
            return x[0].to({1: torch.float32, 7: torch.int64, 9: torch.bool}[attributes["to"]])
        case "Reshape":
            return x[0].reshape(ints[1])
        case "Transpose":
            return x[0].permute(attributes["perm"])
        case "Expand":
            return x[0].expand(torch.broadcast_shapes(x[0].shape, ints[1]))
        case "Softmax":
            return torch.softmax(x[0], attributes.get("axis", -1))
        case "Gelu":
            return F.gelu(x[0], approximate=attributes.get("approximate", "none"))
    functions = {"Add": torch.add, "Mul": torch.mul, "MatMul": torch.matmul, "Tanh": torch.tanh,
                 "Where": torch.where, "IsNaN": torch.isnan, "And": torch.logical_and}  # fmt: skip
    return functions[op.op_type](*x)


class Jitter(torch.autograd.Function):
    """Each element, and each of its gradient, times a number within one rounding of 1: Monte Carlo arithmetic.

    Parker 1997, "Monte Carlo Arithmetic": what changes when each result is rounded up or down at random is what the
    precision cannot tell.
    """

    @staticmethod
    def forward(ctx, x, generator):
        ctx.generator = generator
        return x * _near_one(x, generator)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * _near_one(gradient, ctx.generator), None


def _near_one(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return 1 + EPS * (2 * torch.rand(like.shape, generator=generator) - 1)


def loss_of(
    graph: Graph,
    values: Tensors,
    labels: torch.Tensor,
    decisions: Tensors | None = None,
    jitter: torch.Generator | None = None,
) -> torch.Tensor:
    """The loss of constants and inputs.

    Args:
        graph: the forward model.
        values: of all that no op makes.
        labels: what the loss compares with.
        decisions: by op, which side and which element is taken: where it is given; put there where it is not.
        jitter: with it, every result and every gradient is rounded at random.
    """
    values = dict(values)
    for op in graph.ops:
        made = compute(op, graph, values, decisions)
        is_rough = jitter is not None and made.is_floating_point()
        values[op.outputs[0]] = Jitter.apply(made, jitter) if is_rough else made
    return F.cross_entropy(values[graph.outputs[0]], labels)


def optimizer_of(name: str, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(parameters, RATES[name])
    return torch.optim.SGD(parameters, RATES[name], momentum=0.9 if name == "momentum" else 0.0)


MEMORIES = {
    "sgd": {},
    "momentum": {"momentum": "momentum_buffer"},
    "adam": {"mean": "exp_avg", "squares": "exp_avg_sq"},
}


def state_of(
    name: str, optimizer: torch.optim.Optimizer, parameters: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Parameters and what the optimizer remembers of them, by the names of the built graph."""
    found = {}
    for key, parameter in parameters.items():
        found[key] = parameter.data
        for memory, own in MEMORIES[name].items():
            found[f"{key}.{memory}"] = optimizer.state[parameter][own]
    return found


class Trained:
    """A model in PyTorch, its optimizer, and the batch that it is trained on."""

    def __init__(self, model: str, optimizer: str) -> None:
        self.graph = with_batch(read_model(MODELS / f"{model}.raw.onnx"), BATCH)
        self.optimizer_name = optimizer
        feeds = data(model, self.graph)
        self.labels = torch.from_numpy(feeds.pop("labels"))
        self.inputs = tuple(feeds)
        known = {**self.graph.constants, **feeds}
        self.fixed = {name: torch.from_numpy(np.array(value)) for name, value in known.items()}
        trainable = [
            name
            for name in self.graph.constants
            if (tensor := self.graph.tensors[name]).dtype.is_float and tensor.shape and name not in self.graph.folded
        ]
        for name in trainable:
            self.fixed[name].requires_grad_(True)
        loss = loss_of(self.graph, self.fixed, self.labels)
        found = torch.autograd.grad(loss, [self.fixed[name] for name in trainable], allow_unused=True)
        self.parameters = {
            name: self.fixed[name] for name, gradient in zip(trainable, found, strict=True) if gradient is not None
        }
        self.optimizer = optimizer_of(optimizer, list(self.parameters.values()))

    def step(self) -> float:
        """One step; the loss before it."""
        self.optimizer.zero_grad()
        loss = loss_of(self.graph, self.fixed, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def state(self) -> Tensors:
        """Parameters, and what the optimizer remembers of them: zeros before its first step."""
        if self.optimizer.state:
            return state_of(self.optimizer_name, self.optimizer, self.parameters)
        zeros = {f"{name}.{memory}": torch.zeros_like(value) for name, value in self.parameters.items()
                 for memory in MEMORIES[self.optimizer_name]}  # fmt: skip
        return {**{name: value.data for name, value in self.parameters.items()}, **zeros}

    def next_state(
        self,
        dtype: torch.dtype = torch.float64,
        decisions: Tensors | None = None,
        jitter: torch.Generator | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The state after the next step, and the gradients, computed in some precision; nothing here is changed."""

        def copied(value: torch.Tensor) -> torch.Tensor:
            return value.detach().to(dtype, copy=True) if value.is_floating_point() else value.detach().clone()

        fixed = {name: copied(value) for name, value in self.fixed.items()}
        own = {name: fixed[name].requires_grad_(True) for name in self.parameters}
        stepper = optimizer_of(self.optimizer_name, list(own.values()))
        for name, parameter in self.parameters.items():
            for memory, value in self.optimizer.state.get(parameter, {}).items():
                # Adam's step count is a float32 tensor by design; None is SGD's momentum that it does not keep.
                keeps = value is None or memory == "step"
                stepper.state[own[name]][memory] = (
                    (value if value is None else value.clone()) if keeps else copied(value)
                )
        loss_of(self.graph, fixed, self.labels, decisions, jitter).backward()
        stepper.step()
        following = state_of(self.optimizer_name, stepper, own)
        return (
            {name: value.detach().numpy().copy() for name, value in following.items()},
            {name: value.grad.numpy().copy() for name, value in own.items()},
        )

    def noise(self) -> dict[str, Errors]:
        """Float32's own error in the next step, the largest of some runs (see ``judged_steps.RUNS``).

        Each is measured by the float64 step that takes the same decisions. Of a parameter whose gradient has no digit
        right (a key's bias: a softmax over keys does not see it), any two runs differ by any factor; as in the
        verification of runs, 64 and not 4 times the noise is then allowed.
        """
        found: dict[str, list[Errors]] = {}
        blind: set[str] = set()
        for number in range(RUNS):
            decisions: Tensors = {}
            jitter = torch.Generator().manual_seed(number) if number else None
            rough, rough_gradients = self.next_state(torch.float32, decisions, jitter)
            exact, gradients = self.next_state(torch.float64, decisions)
            blind.update(
                name for name, value in rough_gradients.items()
                if Errors.of(value, gradients[name]).largest >= NO_DIGIT
            )  # fmt: skip
            for name, value in rough.items():
                found.setdefault(name, []).append(Errors.of(value, exact[name]))
        noisy = {
            f"{name}{memory}"
            for name in blind
            for memory in ("", *(f".{key}" for key in MEMORIES[self.optimizer_name]))
        }
        return {
            name: Errors(
                max(error.largest for error in errors) * (16 if name in noisy else 1),
                max(error.median for error in errors) * (16 if name in noisy else 1),
            )
            for name, errors in found.items()
        }
