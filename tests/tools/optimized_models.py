"""Makes the models of tests/whole_way/test_optimized_models.py: small exports after ONNX Runtime's optimizers.

    python tests/tools/optimized_models.py    # with torch 2.13, transformers 5.23, onnx 1.23 and onnxruntime 1.32

BERT, GPT-2 and ViT with random weights, exported by PyTorch's TorchScript exporter, which ONNX Runtime's transformer
optimizer knows best; and a small residual network as ONNX Runtime's session itself saves it, extended optimizations on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnxruntime
import torch
from onnxruntime.transformers import optimizer
from transformers import BertConfig, GPT2Config, ViTConfig
from transformers.models.bert.modeling_bert import BertModel
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel
from transformers.models.vit.modeling_vit import ViTForImageClassification

FOLDER = Path(__file__).parents[1] / "models" / "optimized"
HEADS, WIDTH = 4, 32
BATCH, POSITIONS, WORDS = 2, 8, 48


class First(torch.nn.Module):
    """A model of transformers that gives its first output for positional inputs."""

    def __init__(self, model: torch.nn.Module, *names: str, **options: object) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.options)[0]


class Residual(torch.nn.Module):
    """Convolutions with a shortcut, pooling and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 12, 3, padding=1)
        self.second = torch.nn.Conv2d(12, 12, 3, padding=1)
        self.third = torch.nn.Conv2d(12, 12, 3, padding=1, groups=3)
        self.hidden = torch.nn.Linear(12, 16)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.third(torch.relu(self.second(x))) + x)
        return self.last(torch.tanh(self.hidden(x.mean(dim=(2, 3)))))


def export(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], names: list[str], file: Path) -> None:
    """By the TorchScript exporter."""
    options = {"input_names": names, "output_names": ["y"], "opset_version": 17, "dynamo": False}
    torch.onnx.export(model.eval(), inputs, str(file), **options)


def optimized(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], names: list[str], kind: str) -> None:
    """After the transformer optimizer, as users run it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export(model, inputs, names, file)
        made = optimizer.optimize_model(str(file), kind, num_heads=HEADS, hidden_size=WIDTH, opt_level=0)
    made.save_model_to_file(str(FOLDER / f"{kind}.onnx"))


def saved_by_a_session(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], name: str) -> None:
    """As a session writes what it made of a model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export(model, inputs, ["x"], file)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(FOLDER / f"{name}.onnx")
        onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def main() -> None:
    """All of them."""
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 64}
    words = torch.randint(0, WORDS, (BATCH, POSITIONS))
    mask = torch.ones(BATCH, POSITIONS, dtype=torch.int64)

    names = ["input_ids", "attention_mask", "token_type_ids"]
    config = BertConfig(vocab_size=WORDS, max_position_embeddings=16, attn_implementation="eager", **sizes)
    bert = First(BertModel(config, add_pooling_layer=False), *names)
    optimized(bert, (words, mask, torch.zeros_like(words)), names, "bert")

    config = GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_positions=16,
                        attn_implementation="eager")  # fmt: skip
    optimized(First(GPT2LMHeadModel(config), *names[:2], use_cache=False), (words, mask), names[:2], "gpt2")

    config = ViTConfig(image_size=16, patch_size=4, num_labels=10, attn_implementation="eager", **sizes)
    vit = First(ViTForImageClassification(config), "pixel_values")
    optimized(vit, (torch.randn(BATCH, 3, 16, 16),), ["pixel_values"], "vit")

    saved_by_a_session(Residual(), (torch.randn(BATCH, 3, 9, 9),), "residual")


if __name__ == "__main__":
    main()
