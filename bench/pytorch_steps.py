"""Training steps of PyTorch, for `bench/against_pytorch.py`; it measures nothing itself.

    python bench/pytorch_steps.py NETWORK FOLDER [--optimizer adamw] [--size small] [--device cuda] [--setting tf32]

Runs in PyTorch's environment (`tests/tools/pytorch-requirements.txt`), apart from tofu's. It makes the network with
fresh weights, writes ``network.onnx`` and a batch (``batch.npz``) to the folder unless they are there, answers with a
line of JSON, and then takes as many steps as each line of its input says. ``groups`` answers with processor
milliseconds by group, of PyTorch's own profiler. With RANK and WORLD_SIZE it is one process of DDP over gloo, with its
part of the batch.
"""

# mypy: disable-error-code="import-not-found, misc"
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from torch import nn

_SMALL = 2
"""What sizes are divided by with ``--size small``."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network, a batch for it, and where its classes lie."""

    network: Any
    inputs: Mapping[str, Any]
    classes: int
    class_axis: int = 1


class Logits(nn.Module):
    """A network of transformers, as a function of its inputs in order to the scores alone."""

    def __init__(self, network: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names
        network.config.use_cache = False

    def forward(self, *inputs: Any) -> Any:
        return self.network(**dict(zip(self.names, inputs, strict=True))).logits


class UNet(nn.Module):
    """Three levels of two convolutions with GroupNorm and SiLU, joined on the way up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        a, b, c = width, 2 * width, 4 * width
        self.down = nn.ModuleList([self._block(3, a), self._block(a, b), self._block(b, c)])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(c, b, 2, 2), nn.ConvTranspose2d(b, a, 2, 2)])
        self.joined = nn.ModuleList([self._block(c, b), self._block(b, a)])
        self.head = nn.Conv2d(a, 10, 1)

    @staticmethod
    def _block(wide: int, out: int) -> Any:
        first = (nn.Conv2d(wide, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())
        return nn.Sequential(*first, nn.Conv2d(out, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())

    def forward(self, x: Any) -> Any:
        a = self.down[0](x)
        b = self.down[1](nn.functional.max_pool2d(a, 2))
        c = self.down[2](nn.functional.max_pool2d(b, 2))
        b = self.joined[0](torch.cat([self.ups[0](c), b], 1))
        return self.head(self.joined[1](torch.cat([self.ups[1](b), a], 1)))


class Recurrent(nn.Module):
    """LSTM layers, and classes from the last state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def _pictures(batch: int, side: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, side, side)}


def _of_pictures(kind: str, size: int, batch: int, side: int, **config: Any) -> Case:
    config |= {"num_labels": 10}
    network = getattr(transformers, f"{kind}ForImageClassification")(getattr(transformers, f"{kind}Config")(**config))
    return Case(Logits(network, ("pixel_values",)), _pictures(batch // size, side), 10)


def _of_text(network: Any, batch: int, tokens: int, words: int, *, names: tuple[str, ...] = ("input_ids",)) -> Case:
    inputs = {name: torch.randint(0, words, (batch, tokens)) for name in names}
    return Case(Logits(network, names), inputs, words, 2)


def _resnet(layers: tuple[int, ...], kind: str, side: int) -> Callable[[int], Case]:
    widths = [256, 512, 1024, 2048] if kind == "bottleneck" else [64, 128, 256, 512]
    config = {"depths": list(layers), "layer_type": kind, "hidden_sizes": widths}
    return lambda size: _of_pictures("ResNet", size, 8, side, **config)


def _gpt2(size: int) -> Case:
    config = transformers.GPT2Config(vocab_size=8000, n_positions=256, n_embd=512 // size, n_layer=4, n_head=8,
                                     resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)  # fmt: skip
    return _of_text(transformers.GPT2LMHeadModel(config), 4, 256 // size, 8000)


def _llama(size: int) -> Case:
    config = transformers.LlamaConfig(
        vocab_size=8000, hidden_size=512 // size, intermediate_size=1408 // size, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    return _of_text(transformers.LlamaForCausalLM(config), 4, 256 // size, 8000)


def _mixture(size: int) -> Case:
    """Small: the one form of experts that PyTorch exports copies each token's filters."""
    config = transformers.MixtralConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, num_local_experts=4, num_experts_per_tok=2,
        experts_implementation="batched_mm",
    )  # fmt: skip
    return _of_text(transformers.MixtralForCausalLM(config), 4, 32 // size, 1000)


def _bert(width: int, layers: int, tokens: int, words: int) -> Any:
    return transformers.BertConfig(vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_labels=10,
                                   num_attention_heads=max(2, width // 64), intermediate_size=4 * width,
                                   max_position_embeddings=tokens, hidden_dropout_prob=0,
                                   attention_probs_dropout_prob=0)  # fmt: skip


def _tiny_bert(size: int) -> Case:
    network = transformers.BertForSequenceClassification(_bert(64, 2, 16, 256))
    return Case(Logits(network, ("input_ids",)), {"input_ids": torch.randint(0, 256, (8, 16))}, 10)


def _t5(size: int) -> Case:
    config = transformers.T5Config(vocab_size=8000, d_model=512 // size, d_kv=64, d_ff=2048 // size, num_layers=2,
                                   num_heads=8 // size, dropout_rate=0, attn_implementation="eager")  # fmt: skip
    names = ("input_ids", "decoder_input_ids")
    return _of_text(transformers.T5ForConditionalGeneration(config), 4, 128 // size, 8000, names=names)


def _mlp(size: int) -> Case:
    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())]
    return Case(nn.Sequential(*layers, nn.Linear(256, 10)), {"x": torch.randn(64, 256)}, 10)


NETWORKS: dict[str, Callable[[int], Case]] = {
    "resnet-50": _resnet((3, 4, 6, 3), "bottleneck", 128),
    "resnet-18": _resnet((2, 2, 2, 2), "basic", 96),
    "convnext": lambda size: _of_pictures(
        "ConvNext", size, 8, 128, depths=[2, 2, 4, 2], hidden_sizes=[64, 128, 256, 512], drop_path_rate=0.0
    ),
    "efficientnet": lambda size: _of_pictures(
        "EfficientNet", size, 8, 96, image_size=96, dropout_rate=0.0, drop_connect_rate=0.0, width_coefficient=1.0,
        depth_coefficient=1.0, hidden_dim=1280
    ),
    "u-net": lambda size: Case(UNet(32), {"x": torch.randn(4 // size, 3, 128, 128)}, 10),
    "lstm": lambda size: Case(Recurrent(512 // size), {"x": torch.randn(32, 16, 512 // size)}, 10),
    "gpt-2": _gpt2,
    "llama": _llama,
    "mixture": _mixture,
    "vit": lambda size: _of_pictures(
        "ViT", size, 8, 128, hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=6,
        image_size=128, patch_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ),
    "bert": lambda size: _of_text(
        transformers.BertForMaskedLM(_bert(512 // size, 4, 128, 8000)), 8, 128 // size, 8000
    ),
    "t5": _t5,
    "tiny-bert": _tiny_bert,
    "mlp": _mlp,
}  # fmt: skip
"""By name; the argument divides the sizes."""

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-4, momentum=0.9),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-5, weight_decay=0.01),
}

_KINDS: dict[str, str] = {
    "convolution": "convolutions", "addmm": "products", "mm": "products", "bmm": "products", "linear": "products",
    "scaled_dot": "products", "lstm": "recurrences", "norm": "norms", "softmax": "softmax and loss",
    "nll": "softmax and loss", "relu": "activations", "gelu": "activations", "silu": "activations",
    "tanh": "activations", "threshold": "activations", "sigmoid": "activations", "pool": "pooling",
}  # fmt: skip
"""By what an operator's name has in it: the group's kind; all else is `other`."""


def _kind(name: str) -> str:
    return next((kind for part, kind in _KINDS.items() if part in name), "other")


class Step:
    """The network, its batch, and one step of training after the other."""

    def __init__(self, case: Case, optimizer: str, device: str, setting: str, labels: Any) -> None:
        self._device, self._setting, self._axis = device, setting, case.class_axis
        if device == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = setting != "highest"
        self._network = case.network.to(device).train()
        self._inputs = [x.to(device) for x in case.inputs.values()]
        self._labels = labels.to(device)
        if "RANK" in os.environ:
            rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            torch.distributed.init_process_group("gloo")
            self._inputs = [x.chunk(ranks)[rank] for x in self._inputs]
            self._labels = self._labels.chunk(ranks)[rank]
            self._network = nn.parallel.DistributedDataParallel(self._network)
        self._optimizer = OPTIMIZERS[optimizer](self._network.parameters())

    def _forward(self) -> Any:
        with torch.autocast(self._device, torch.bfloat16, enabled=self._setting == "bfloat16"):
            scores = self._network(*self._inputs)
            return nn.functional.cross_entropy(scores.movedim(self._axis, 1), self._labels)

    def __call__(self) -> float:
        """Takes a step; the loss before it."""
        loss = self._forward()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        if self._device == "cuda":
            torch.cuda.synchronize()
        return float(loss.item())

    def groups(self) -> dict[str, float]:
        """Milliseconds of one step by group."""
        self()
        found: Counter[str] = Counter()

        def part(name: str, work: Callable[[], Any]) -> Any:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                result = work()
            for event in profile.key_averages():
                kind = "update" if name == "update" else f"{_kind(event.key.lower())} {name}"
                found[kind] += event.self_cpu_time_total / 1e3
            return result

        loss = part("forward", self._forward)
        part("backward", loss.backward)
        part("update", self._optimizer.step)
        return dict(found)


def _requests() -> Iterator[str]:
    for line in sys.stdin:
        yield line.strip()


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=list(NETWORKS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), default="momentum")
    parser.add_argument("--size", choices=["small", "full"], default="full")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--setting", choices=["highest", "tf32", "bfloat16"], default="highest")
    given = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # the exporter prints
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = NETWORKS[given.network](_SMALL if given.size == "small" else 1)
    network, inputs = case.network.train(), tuple(case.inputs.values())
    with torch.no_grad():
        shape = network.eval()(*inputs).shape
    network.train()
    labels = torch.randint(0, case.classes, (*shape[: case.class_axis], *shape[case.class_axis + 1 :]))
    path = given.folder / "network.onnx"
    if not path.exists():
        torch.onnx.export(network, inputs, str(path), dynamo=True, optimize=False, external_data=False, verbose=False,
                          input_names=list(case.inputs), output_names=["scores"])  # fmt: skip
        np.savez(given.folder / "batch.npz", labels=labels.numpy(), **{n: x.numpy() for n, x in case.inputs.items()})
    step = Step(case, given.optimizer, given.device, given.setting, labels)

    def answer(said: Mapping[str, Any]) -> None:
        print(json.dumps(said), file=answers, flush=True)

    answer({"processes": [os.getpid()]})
    for request in _requests():
        if request == "groups":
            answer({"groups": step.groups()})
            continue
        start = time.perf_counter()
        losses = [step() for _ in range(int(request))]
        answer({"seconds": time.perf_counter() - start, "losses": losses})


if __name__ == "__main__":
    main()
