"""50 steps of ResNet-50 and BERT by the built graph in the stock runtime, each from PyTorch's state of that step.

    python tests/tools/torch_steps.py [--steps N] [MODEL.OPTIMIZER ...]    # where torch and onnxruntime are installed

A step is right if its loss is PyTorch's to 1e-5; if in float64 it is PyTorch's step in float64; and if each next
state in float32 is within four times float32's own error, or 64 ulp, of the float64 step that takes the same decisions
(see ``judged_steps``). Printed are, for each step: both losses, and that of the graph running free from the first
state; the largest error in float64 and in float32; the largest share of its limit that an error takes; and how many
decisions the runtime takes otherwise than float64 does. Exits with 1 if a step is wrong.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from judged_steps import LOSS_LIMIT, NAMES, NO_DIGIT, RATES, SAME, STEPS, TIE_LIMIT, BuiltStep, Errors
from torch_model import Trained


def check(model: str, optimizer: str, steps: int) -> list[str]:
    """What is wrong with the steps; prints one line for each."""
    network, built = Trained(model, optimizer), BuiltStep(model, optimizer)
    free = dict(built.first)
    free.update((name, np.zeros(built.graph.tensors[name].shape, np.float32))
                for name, value in free.items() if value is None)  # fmt: skip
    wrong: list[str] = []
    print(f"\n{model}, {optimizer}")
    print(f"{'step':>4} {'PyTorch':>10} {'tofu':>10} {'free':>10} {'in float64':>11} {'in float32':>11} {'of limit':>9}"
          f" {'turned':>7}")  # fmt: skip
    for number in range(steps):
        state = {name: value.numpy().copy() for name, value in network.state().items()}
        exact_theirs, noise, theirs = network.next_state()[0], network.noise(), network.step()
        feeds = built.feeds(state, number)
        found, exact = built.run(feeds), built.exact(feeds)
        turned = built.turned(found, exact)
        like = built.exact_like(feeds, found) if turned else exact
        following, twins, same = (built.next_states(values, list(state)) for values in (found, exact, like))
        where = f"{model}, {optimizer}, step {number}"
        if not abs(found["loss"] - theirs) <= LOSS_LIMIT * max(1.0, theirs):
            wrong.append(f"{where}: loss {found['loss']}, PyTorch's {theirs}")
        if max(turned, default=0.0) > TIE_LIMIT:
            wrong.append(f"{where}: a decision {max(turned)} from a tie")
        most_exact = most = share = 0.0
        for name, own in noise.items():
            if own.largest < NO_DIGIT:
                away = Errors.of(twins[name], exact_theirs[name]).largest
                most_exact = max(most_exact, away)
                if away > SAME:
                    wrong.append(f"{where}: {name} in float64 is {away} from PyTorch's")
            error = Errors.of(following[name], same[name])
            most = max(most, error.largest if own.largest < NO_DIGIT else 0.0)
            share = max(share, error.over(own))
            if error.over(own) > 1:
                wrong.append(f"{where}: {name} {error}, float32's own {own}")
        stepped = built.run(free)
        free.update((pair.current, stepped[pair.following]) for pair in built.graph.state)
        losses = f"{theirs:>10.6f} {found['loss']:>10.6f} {stepped['loss']:>10.6f}"
        print(f"{number:>4} {losses} {most_exact:>11.1e} {most:>11.1e} {share:>9.2f} {len(turned):>7}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    every = [f"{model}.{optimizer}" for model in NAMES for optimizer in RATES]
    parser.add_argument("cases", nargs="*", metavar="MODEL.OPTIMIZER", help="by default all of: " + ", ".join(every))
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    wrong: list[str] = []
    for case in given.cases or every:
        model, _, optimizer = case.partition(".")
        wrong += check(model, optimizer, given.steps)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"\n{len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
