"""Makes the exports in tests/models/exports: ``python tests/tools/exported_models.py``, with torch and transformers.

Made with torch 2.13 and transformers 5.23: one layer, 8 wide, random weights, optimized as ``torch.onnx.export`` does
by default. What tools add beside the model (metadata, types of inner tensors) is left out.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
import transformers

FOLDER = Path(__file__).parents[1] / "models" / "exports"


class Logits(torch.nn.Module):
    """A model of transformers that gives its logits alone."""

    def __init__(self, m: torch.nn.Module) -> None:
        super().__init__()
        self.m = m

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.m(x).logits


def export(name: str, model: torch.nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    for is_optimized in (True, False):
        proto = torch.onnx.export(Logits(model).eval(), (x,), dynamo=True, optimize=is_optimized).model_proto
        del proto.graph.value_info[:], proto.metadata_props[:], proto.graph.metadata_props[:]
        for node in (*proto.graph.node, *(node for function in proto.functions for node in function.node)):
            del node.metadata_props[:]
        for tensor in proto.graph.initializer:
            del tensor.metadata_props[:]
        for function in proto.functions:
            del function.value_info[:], function.metadata_props[:]
        onnx.save(proto, FOLDER / f"{name}{'' if is_optimized else '.raw'}.onnx")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(
        vocab_size=20, num_key_value_heads=1, max_position_embeddings=8, use_cache=False, **sizes
    )
    export("llama", transformers.LlamaForCausalLM(config), torch.randint(0, 20, (2, 8)))
    images = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **sizes)
    export("vit", transformers.ViTForImageClassification(images), torch.randn(2, 3, 8, 8))


if __name__ == "__main__":
    main()
