"""Small copies of networks whose whole sizes `bench/real_sizes.py` plans: two layers of each, by PyTorch's exporter.

    python tests/tools/real_size_copies.py OUT

Runs in an environment of its own (`tests/tools/real-size-requirements.txt`). Writes ``OUT/NAME.onnx`` for each network
as the exporter writes it before its optimizer, without weights: each initializer with more than a few elements is
external data in a file that does not exist. What stands in `tests/models/real_sizes` was written so.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import onnx
import torch
import transformers
from onnx import TensorProto
from torch import Tensor, nn

from world_models import bare

BATCH, WORDS = 4, 48
_KEPT = 64
"""Initializers of so many elements keep their values: shapes and axes are among them."""


class Picked(nn.Module):
    """A network whose result is one tensor.

    Args:
        network: of transformers or diffusers.
        names: of its arguments, in the order in which this one takes them.
        fixed: further arguments.
    """

    def __init__(self, network: nn.Module, names: tuple[str, ...], **fixed: object) -> None:
        super().__init__()
        self.network, self._names, self._fixed = network, names, fixed

    def forward(self, *given: Tensor) -> Tensor:
        """The first result."""
        return self.network(**dict(zip(self._names, given, strict=True)), return_dict=False, **self._fixed)[0]


def _tokens(length: int = 8) -> Tensor:
    return torch.randint(0, WORDS, (BATCH, length))


_SIZES = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}  # fmt: skip


def llama() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Llama 3: rotations, grouped queries, SwiGLU."""
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SIZES, rope_theta=5e5))
    return Picked(network, ("input_ids",), use_cache=False), (_tokens(),)


def mixture() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Mixtral: the weights of a token's experts are gathered, and multiplied as a batch."""
    settings = transformers.MixtralConfig(**_SIZES, num_local_experts=4, num_experts_per_tok=2)
    settings._experts_implementation = "batched_mm"
    return Picked(transformers.MixtralForCausalLM(settings), ("input_ids",), use_cache=False), (_tokens(),)


def mamba() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Mamba-2: a scan in chunks."""
    settings = transformers.Mamba2Config(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, state_size=4, expand=2, num_heads=4, head_dim=8,
        n_groups=1, chunk_size=4, conv_kernel=4,
    )  # fmt: skip
    return Picked(transformers.Mamba2ForCausalLM(settings), ("input_ids",), use_cache=False), (_tokens(),)


def whisper() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Whisper: an encoder of spectra, a decoder of text that attends to it."""
    settings = transformers.WhisperConfig(
        vocab_size=WORDS, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, num_mel_bins=6, max_source_positions=8,
        max_target_positions=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    network = Picked(transformers.WhisperForConditionalGeneration(settings),
                     ("input_features", "decoder_input_ids"), use_cache=False)  # fmt: skip
    return network, (torch.randn(BATCH, 6, 16), _tokens())


def dit() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """DiT: normalisations that a time and a class shift and scale."""
    from diffusers import DiTTransformer2DModel

    network = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
        patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4,
    )  # fmt: skip
    given = torch.randn(BATCH, 4, 8, 8), torch.randint(0, 1000, (BATCH,)), torch.randint(0, 10, (BATCH,))
    return Picked(network, ("hidden_states", "timestep", "class_labels")), given


def unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Stable Diffusion 1's U-Net, of two resolutions."""
    from diffusers import UNet2DConditionModel

    network = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
        cross_attention_dim=12, attention_head_dim=2, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    given = torch.randn(BATCH, 4, 8, 8), torch.randint(0, 1000, (BATCH,)), torch.randn(BATCH, 5, 12)
    return Picked(network, ("sample", "timestep", "encoder_hidden_states")), given


COPIES: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "llama": llama, "dit": dit, "unet": unet, "whisper": whisper, "mamba2": mamba, "moe": mixture,
}  # fmt: skip


def weightless(path: Path) -> None:
    """Takes the values of all weights out of a file."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        elements = 1
        for size in tensor.dims:
            elements *= size
        if tensor.data_type == TensorProto.FLOAT and elements > 1:
            for field in ("raw_data", "float_data"):
                tensor.ClearField(field)
            del tensor.external_data[:]
            tensor.data_location = TensorProto.EXTERNAL
            entry = tensor.external_data.add()
            entry.key, entry.value = "location", "no-weights"
    path.write_bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    """See the top of this file."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.CRITICAL)
    for name, make in COPIES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(0)
        network, given = make()
        network.eval()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                network, given, dynamo=True, optimize=False, opset_version=21, verbose=False
            )
        program.save(str(folder / f"{name}.onnx"))
        bare(folder / f"{name}.onnx")
        weightless(folder / f"{name}.onnx")
        print(name, (folder / f"{name}.onnx").stat().st_size)


if __name__ == "__main__":
    main()
