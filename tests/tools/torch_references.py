"""Makes the references of tests/training/test_references.py with PyTorch.

    python tests/tools/torch_references.py [--anew]    # in an environment with torch, onnx, onnxruntime and ml_dtypes

The forward models in tests/models are trained for 50 steps on one batch by PyTorch's own optimizers. Of two steps is
kept:

- of the first, whose state is in the model: every 61st element of the state after it, computed in float64;
- of step 24: its state, rounded to bfloat16, so that it takes little room, before PyTorch goes on from there; and every
  seventh element of the state after it, computed in float32 and in float64;
- of both: float32's own error, the largest and the median of each tensor, over some runs (``judged_steps.RUNS``), each
  against the float64 step that takes the same side of every Relu and the same element of every window.

Without ``--anew`` the states of step 24 are those that are there already.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from judged_steps import FIRST_STRIDE, KEPT, MODELS, NAMES, RATES, STEPS, STRIDE
from torch_model import Trained, state_of

FOLDER = MODELS / "torch"


def trained(model: str, optimizer: str) -> dict[str, np.ndarray]:
    """50 steps: the losses, and the kept one."""
    network = Trained(model, optimizer)
    kept: dict[str, np.ndarray] = {}
    losses = []
    for step in range(STEPS):
        if step == KEPT:
            for name, value in network.state().items():
                rounded = value.to(torch.bfloat16)
                value.copy_(rounded)
                kept[f"before/{name}"] = rounded.view(torch.int16).numpy().view(np.uint16)
            exact = network.next_state()[0]
            kept.update((f"exact/{name}", value.reshape(-1)[::STRIDE].astype(np.float32))
                        for name, value in exact.items())  # fmt: skip
        losses.append(network.step())
        if step == KEPT:
            for name, value in network.state().items():
                kept[f"after/{name}"] = value.reshape(-1)[::STRIDE].numpy().copy()
    return {"losses": np.array(losses), **kept}


def with_state_of(model: str, optimizer: str, reference: dict[str, np.ndarray]) -> Trained:
    """The network at the kept step."""
    network = Trained(model, optimizer)
    network.step()  # so that the optimizer has its memories
    for name, value in state_of(optimizer, network.optimizer, network.parameters).items():
        bits = torch.from_numpy(reference[f"before/{name}"].view(np.int16)).view(torch.bfloat16)
        value.copy_(bits.reshape(value.shape))
    for memory in network.optimizer.state.values():
        if "step" in memory:
            memory["step"].fill_(KEPT)
    return network


def noise(network: Trained) -> np.ndarray:
    """The largest and the median error of each tensor of the state, by name."""
    found = network.noise()
    return np.array([(found[name].largest, found[name].median) for name in sorted(found)], np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--anew", action="store_true")
    anew = parser.parse_args().anew
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    steps: dict[str, np.ndarray] = {}
    for model in NAMES:
        for optimizer in RATES:
            file = FOLDER / f"{model}.{optimizer}.npz"
            if anew or not file.exists():
                np.savez_compressed(file, **trained(model, optimizer))
            with np.load(file) as arrays_of:
                reference = dict(arrays_of)
            first = Trained(model, optimizer)
            exact = first.next_state()[0]
            flat = [exact[name].reshape(-1)[::FIRST_STRIDE] for name in sorted(exact)]
            steps[f"{model}.{optimizer}.first"] = np.concatenate(flat).astype(np.float32)
            steps[f"{model}.{optimizer}.first.noise"] = noise(first)
            steps[f"{model}.{optimizer}.kept.noise"] = noise(with_state_of(model, optimizer, reference))
            print(file.name, file.stat().st_size, reference["losses"][[0, KEPT, -1]], flush=True)
    np.savez_compressed(FOLDER / "steps.npz", **steps)
    print("steps.npz", (FOLDER / "steps.npz").stat().st_size)


if __name__ == "__main__":
    main()
