"""Four networks on the way of docs/export-from-pytorch.md: out of PyTorch, trained by tofu, back into PyTorch.

    python tests/tools/pytorch_networks.py OUT [--table FILE]

Runs in an environment of its own (`tests/tools/pytorch-requirements.txt`; `make test-pytorch` makes it), with tofu's
commands on the path. A CNN, a GPT-2, a Llama and a ViT, small, with fresh weights; each is exported with the options
that the page's first export has, and goes back by the page's own function. The numbers are held to the limits below;
``--table`` writes them to a file.
"""

from __future__ import annotations

import argparse
import ast
import copy
import datetime
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from torch import Tensor, nn

import planner
from pytorch_page import PAGE, blocks

BATCH = 8
STEPS = 10
LESSONS = 120
"""Steps in which a language model is to learn a text by heart."""
MOST_APART = 1e-4
"""Of a loss, to PyTorch's."""
LEARNT = 0.1
"""Below this a repeated text is known by heart."""
TEXT = "a quick brown fox jumps over the lazy dog. "
WORDS = sorted(set(TEXT))
TOKENS = 32
HEADING = "# Four networks of PyTorch\n"
"""Of the file that ``--table`` writes."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and what it is trained on."""

    name: str
    network: nn.Module
    given: str
    """The name of its input."""
    is_language: bool


class Convolutional(nn.Module):
    """Two convolutions with BatchNormalizations, one of them with a bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        last = (nn.Conv2d(16, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.block = nn.Sequential(nn.MaxPool2d(2), *last)
        self.head = nn.Linear(width, 10)
        nn.init.zeros_(self.head.bias)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.head(self.block(self.stem(pixel_values)).mean((2, 3)))


def cases(width: int = 32) -> list[Case]:
    """The networks, with weights that were never trained."""
    torch.manual_seed(0)
    words, wide = {"vocab_size": len(WORDS), "bos_token_id": 0, "eos_token_id": 0}, {"hidden_size": width}
    gpt2 = transformers.GPT2Config(
        n_positions=TOKENS, n_embd=width, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **words
    )
    llama = transformers.LlamaConfig(
        intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=TOKENS, **words, **wide,
    )  # fmt: skip
    vit = transformers.ViTConfig(
        intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4,
        num_labels=10, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **wide,
    )  # fmt: skip
    found = [
        Case("CNN with BatchNorm", Convolutional(width), "pixel_values", False),
        Case("GPT-2", transformers.GPT2LMHeadModel(gpt2), "input_ids", True),
        Case("Llama", transformers.LlamaForCausalLM(llama), "input_ids", True),
        Case("ViT", transformers.ViTForImageClassification(vit), "pixel_values", False),
    ]
    for case in found:
        if case.is_language:
            case.network.config.use_cache = False  # its result is the logits alone
    return found


def page_export() -> Mapping[str, Any]:
    """The options of the page's first export."""
    for block in blocks(PAGE):
        if block.kind == "python" and "torch.onnx.export(" in block.text:
            calls = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Call)]
            call = next(call for call in calls if ast.unparse(call.func) == "torch.onnx.export")
            stated = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg is not None}
            return {name: value for name, value in stated.items() if not name.endswith("_names")}
    raise LookupError("the page exports nothing")


def tofu(*words: object) -> Any:
    """What a command prints with ``--json``."""
    done = subprocess.run(["tofu", *map(str, words), "--json"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"tofu {' '.join(map(str, words))}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def batch_of(case: Case, number: int) -> dict[str, Tensor]:
    """A batch: pictures with labels, or windows of a repeated text."""
    drawn = torch.Generator().manual_seed(number)
    if not case.is_language:
        pictures = torch.randn(BATCH, 3, 16, 16, generator=drawn)
        return {case.given: pictures, "labels": torch.randint(0, 10, (BATCH,), generator=drawn)}
    text = torch.tensor([WORDS.index(letter) for letter in TEXT * 3])
    starts = torch.randint(0, len(TEXT), (BATCH,), generator=drawn)
    return {case.given: torch.stack([text[start : start + TOKENS] for start in starts.tolist()])}


def loss_of(case: Case, network: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """PyTorch's loss; of a language model, that of the next token."""
    found = network(batch[case.given])
    scores = found if isinstance(found, Tensor) else found.logits
    if case.is_language:
        return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), batch[case.given][:, 1:].flatten())
    return nn.functional.cross_entropy(scores, batch["labels"])


OPTIMIZERS: dict[str, tuple[tuple[str, ...], Callable[[Any], torch.optim.Optimizer]]] = {
    "momentum": (("--lr", "0.05"), lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9)),
    "adamw": (("--lr", "0.005", "--group", "*:decay=0.01"),
              lambda weights: torch.optim.AdamW(weights, lr=0.005, weight_decay=0.01)),
}  # fmt: skip
"""By name: tofu's options, and PyTorch's own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a network."""

    trained: int
    parameters: int
    apart: float
    """The largest relative difference of a loss."""
    learnt: float | None
    """The last loss of a language model that has gone on."""
    faults: tuple[str, ...]


def tried(case: Case, optimizer: str, folder: Path) -> Outcome:
    """Exports, trains, compares and loads one network."""
    folder.mkdir(parents=True)
    faults: list[str] = []
    options, of_torch = OPTIMIZERS[optimizer]
    first = batch_of(case, 0)
    network = copy.deepcopy(case.network).train()
    torch.onnx.export(
        network, (first[case.given],), str(folder / "net.onnx"), **page_export(), verbose=False,
        input_names=[case.given], output_names=["scores"],
    )  # fmt: skip
    shift = ("--shift",) if case.is_language else ()
    step = folder / "step.onnx"
    said = tofu("grad", folder / "net.onnx", "--loss", "softmax_cross_entropy", *shift,
                "--optimizer", optimizer, *options, "-o", step)  # fmt: skip
    faults += said["warnings"]
    names = {row["name"] for row in said["parameters"] if row["verdict"] == "trained"}
    own = dict(network.named_parameters())  # tied ones once
    tied = {id(value): name for name, value in network.named_parameters(remove_duplicate=False) if name in names}
    faults += [f"{name} is not trained" for name, value in own.items() if id(value) not in tied]
    faults += [f"{name} is no parameter" for name in names - set(network.state_dict())]
    if len(names) != len(own):
        faults.append(f"{len(names)} are trained, the network has {len(own)}")
    tofu("plan", step, "--gpus", 2, "-o", folder / "plan", "--effort", "quick")
    (folder / "batches").mkdir()
    steps = LESSONS if case.is_language and optimizer == "adamw" else STEPS
    for number in range(steps):
        arrays = {name: value.numpy() for name, value in batch_of(case, number).items()}
        np.savez(folder / "batches" / f"{number:04d}.npz", **arrays)
    ran = tofu("run", folder / "plan", "--inputs", folder / "batches", "--steps", steps,
               "-o", folder / "trained.safetensors")  # fmt: skip
    twin = copy.deepcopy(network)
    follows = of_torch(twin.parameters())
    losses = []
    for number in range(steps):
        loss = loss_of(case, twin, batch_of(case, number))
        follows.zero_grad()
        loss.backward()
        follows.step()
        losses.append(loss.item())
    apart = max(abs(one - other) / abs(other) for one, other in zip(ran["losses"][:STEPS], losses[:STEPS], strict=True))
    if apart > MOST_APART:
        faults.append(f"a loss is {apart:.1e} from PyTorch's")
    planner.load_into(network, folder / "trained.safetensors")
    with torch.no_grad():
        after = loss_of(case, network, batch_of(case, 0)).item()
        wanted = loss_of(case, twin, batch_of(case, 0)).item()
    if abs(after - wanted) > 1e-2 * abs(wanted):
        faults.append(f"the loss of what came back is {after}, PyTorch's own {wanted}")
    learnt = ran["losses"][-1] if steps > STEPS else None
    if learnt is not None and learnt >= LEARNT:
        faults.append(f"after {steps} steps the loss is {learnt}")
    return Outcome(len(names), len(own), apart, learnt, tuple(faults))


def table(out: Path) -> tuple[str, bool]:
    """Tries all networks; the table, and whether something is not as it should be, which stderr tells."""
    version = torch.__version__.partition("+")[0]
    lines = [
        f"{datetime.date.today()}, by `make test-pytorch`: PyTorch {version}, transformers {transformers.__version__}, "
        f"on the CPU; float32, batch {BATCH}, two workers, dropout 0.",
        "\n| network | optimizer | parameters trained, by name | largest relative difference of ten losses "
        "| `strict=True` | a repeated text |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    failed = False
    for case in cases():
        for optimizer in OPTIMIZERS:
            found = tried(case, optimizer, out / f"{case.name.replace(' ', '-')}-{optimizer}")
            learnt = "" if found.learnt is None else f"loss {found.learnt:.3f} after {LESSONS} steps"
            row = f"| {case.name} | `{optimizer}` | {found.trained} of {found.parameters} | {found.apart:.1e} |"
            lines.append(f"{row} loaded | {learnt} |")
            print(lines[-1], flush=True)
            for fault in found.faults:
                failed = True
                print(f"{case.name}, {optimizer}: {fault}", file=sys.stderr, flush=True)
    return "\n".join(lines), failed


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", type=Path, metavar="FILE")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    torch.set_num_threads(1)  # networks so small are not faster on several
    text, failed = table(given.out)
    if given.table is not None and not failed:
        given.table.write_text(f"{HEADING}\n{text}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
