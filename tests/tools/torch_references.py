"""Makes the references of tests/training/test_references.py with PyTorch.

    python tests/tools/torch_references.py          # in an environment with torch, numpy, onnx and ml_dtypes

The forward models in tests/models are computed by PyTorch, op by op, and trained for 50 steps on one batch by PyTorch's
own optimizers. At one step the state is rounded to bfloat16, so that it takes little room, and PyTorch goes on from
there. Kept are: the loss of every step, that state, and every seventh element of the state after the step.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- as everybody calls it

from planner.graph.from_onnx import read_model
from planner.graph.model import Graph, Op
from planner.training.batch import with_batch

MODELS = Path(__file__).parent.parent / "models"
STEPS, KEPT, STRIDE, BATCH = 50, 24, 7, 8
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.001}


def data(name: str, graph: Graph) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The batch: inputs and labels."""
    rng = np.random.default_rng(0)
    if name.startswith("bert"):
        tokens = rng.integers(0, 256, graph.tensors["a_0"].shape)
        return {"a_0": tokens, "a_1": np.ones(tokens.shape, np.int64)}, rng.integers(0, 2, BATCH)
    return {"a_0": rng.standard_normal(graph.tensors["a_0"].shape).astype(np.float32)}, rng.integers(0, 10, BATCH)


def compute(op: Op, graph: Graph, values: dict[str, torch.Tensor]) -> torch.Tensor:
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
            return F.max_pool2d(x[0], attributes["kernel_shape"], attributes["strides"], attributes["pads"][:2])
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
    functions = {"Relu": torch.relu, "Add": torch.add, "Mul": torch.mul, "MatMul": torch.matmul, "Tanh": torch.tanh,
                 "Where": torch.where, "IsNaN": torch.isnan, "And": torch.logical_and}  # fmt: skip
    return functions[op.op_type](*x)


def loss_of(graph: Graph, constants: dict[str, torch.Tensor], feeds: dict[str, torch.Tensor], labels: torch.Tensor):
    values = {**constants, **feeds}
    for op in graph.ops:
        values[op.outputs[0]] = compute(op, graph, values)
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


def exact_step(graph, name, optimizer, constants, parameters, feeds, target) -> dict[str, np.ndarray]:
    """The state after one step in float64, of which float32 is kept: what both are judged by."""

    def wide(value: torch.Tensor) -> torch.Tensor:
        return value.detach().double() if value.is_floating_point() else value

    own = {key: wide(value) for key, value in constants.items()}
    for key in parameters:
        own[key].requires_grad_(True)
    trained = {key: own[key] for key in parameters}
    stepper = optimizer_of(name, list(trained.values()))
    for key, parameter in parameters.items():
        for memory in optimizer.state[parameter]:
            value = optimizer.state[parameter][memory]
            # Adam's step count is a float32 tensor by design; None is SGD's momentum that it does not keep.
            keeps = value is None or memory == "step"
            stepper.state[trained[key]][memory] = (value if value is None else value.clone()) if keeps else wide(value)
    loss_of(graph, own, {key: wide(value) for key, value in feeds.items()}, target).backward()
    stepper.step()
    return {key: value.reshape(-1)[::STRIDE].float().numpy().copy()
            for key, value in state_of(name, stepper, trained).items()}  # fmt: skip


def reference(model: str, optimizer_name: str) -> dict[str, np.ndarray]:
    graph = with_batch(read_model(MODELS / f"{model}.onnx"), BATCH)
    constants = {name: torch.from_numpy(np.array(value)) for name, value in graph.constants.items()}
    feeds, labels = data(model, graph)
    tensors = {name: torch.from_numpy(value) for name, value in feeds.items()}
    target = torch.from_numpy(labels)
    parameters = {}
    for name in graph.constants:
        tensor = graph.tensors[name]
        if tensor.dtype.is_float and tensor.shape and name not in graph.folded:
            constants[name].requires_grad_(True)
            parameters[name] = constants[name]
    gradients = torch.autograd.grad(loss_of(graph, constants, tensors, target), parameters.values(), allow_unused=True)
    parameters = {name: value for (name, value), found in zip(parameters.items(), gradients, strict=True)
                  if found is not None}  # fmt: skip
    optimizer = optimizer_of(optimizer_name, list(parameters.values()))
    kept: dict[str, np.ndarray] = {}
    losses = []
    for step in range(STEPS):
        if step == KEPT:
            for name, value in state_of(optimizer_name, optimizer, parameters).items():
                rounded = value.to(torch.bfloat16)
                value.copy_(rounded)
                kept[f"before/{name}"] = rounded.view(torch.int16).numpy().view(np.uint16)
            exact = exact_step(graph, optimizer_name, optimizer, constants, parameters, tensors, target)
            kept.update((f"exact/{name}", value) for name, value in exact.items())
        optimizer.zero_grad()
        loss = loss_of(graph, constants, tensors, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == KEPT:
            for name, value in state_of(optimizer_name, optimizer, parameters).items():
                kept[f"after/{name}"] = value.reshape(-1)[::STRIDE].numpy().copy()
    return {"losses": np.array(losses), **kept}


def main() -> None:
    torch.manual_seed(0)
    for model in ("resnet50.raw", "bert.raw"):
        for optimizer in RATES:
            found = reference(model, optimizer)
            file = MODELS / "torch" / f"{model.removesuffix('.raw')}.{optimizer}.npz"
            file.parent.mkdir(exist_ok=True)
            np.savez_compressed(file, **found)
            print(file.name, file.stat().st_size, found["losses"][[0, KEPT, -1]])


if __name__ == "__main__":
    main()
