"""The corpus of the world: networks that other people wrote, small and with random weights, exported by PyTorch.

    python tests/tools/world_models.py OUT [NAME ...] [--list]

Runs in an environment of its own (`tests/tools/world-requirements.txt`; `make world` makes it). Writes, for each
architecture, ``OUT/NAME.onnx`` as PyTorch's exporter writes it after its optimizer and ``OUT/NAME.raw.onnx`` before
it; ``OUT/NAME.error`` holds the exporter's message where it refuses the network. What is there already is left.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from torch import Tensor, nn

BATCH = 4
TOKENS = 12
Made = tuple[nn.Module, tuple[Tensor, ...]]
"""A network, and inputs to trace it with."""


def images(size: int = 32, channels: int = 3) -> tuple[Tensor, ...]:
    """A batch of square images."""
    return (torch.randn(BATCH, channels, size, size),)


def tokens(vocabulary: int = 64, length: int = TOKENS, batch: int = BATCH) -> tuple[Tensor, ...]:
    """A batch of token ids."""
    return (torch.randint(2, vocabulary, (batch, length)),)


class Picked(nn.Module):
    """A network of transformers whose result is one tensor.

    Args:
        network: returns an object with named tensors.
        names: of the network's arguments, in the order in which this one takes them.
        pick: the name of the result.
        fixed: further arguments.
    """

    def __init__(self, network: nn.Module, names: tuple[str, ...], pick: str, **fixed: object) -> None:
        super().__init__()
        self.network, self._names, self._pick, self._fixed = network, names, pick, fixed

    def forward(self, *given: Tensor) -> Tensor:
        """The picked result."""
        result = self.network(**dict(zip(self._names, given, strict=True)), return_dict=True, **self._fixed)
        return getattr(result, self._pick)


# --- torchvision ------------------------------------------------------------------------------------------------------


def torchvision_models() -> Any:
    """The package; its operators (NMS), compiled for another build of PyTorch, are declared and never run."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    with contextlib.suppress(RuntimeError):
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qroi_align(Tensor a, Tensor b, float s, int h, int w, int n, bool c) -> Tensor")
    torchvision_models.library = library  # type: ignore[attr-defined]  # it must outlive the call
    from torchvision import models

    return models


def _tv(make: Callable[[Any], nn.Module], size: int = 32) -> Callable[[], Made]:
    return lambda: (make(torchvision_models()), images(size))


def _tv_efficientnet(models: Any) -> nn.Module:
    from torchvision.models import efficientnet as e

    settings = [e.MBConvConfig(1, 3, 1, 32, 16, 1, 0.25, 1), e.MBConvConfig(6, 3, 2, 16, 24, 2, 0.25, 1),
                e.MBConvConfig(6, 5, 2, 24, 40, 1, 0.25, 1)]  # fmt: skip
    return models.EfficientNet(settings, 0.0, num_classes=10)


def _tv_regnet(models: Any) -> nn.Module:
    from torchvision.models.regnet import BlockParams

    params = BlockParams.from_init_params(depth=4, w_0=16, w_a=8.0, w_m=2.0, group_width=8, se_ratio=0.25)
    return models.RegNet(params, num_classes=10)


def _tv_convnext(models: Any) -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig as Block

    return models.ConvNeXt([Block(16, 32, 1), Block(32, 64, 1), Block(64, None, 1)], num_classes=10)


def _tv_mobilenet_v3(models: Any) -> nn.Module:
    from torchvision.models.mobilenetv3 import _mobilenet_v3_conf

    settings, last = _mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.25)
    return models.MobileNetV3(settings, last, num_classes=10)


def _tv_vgg(models: Any) -> nn.Module:
    from torchvision.models.vgg import make_layers

    net = models.VGG(make_layers([8, "M", 16, "M", 32, 32, "M"], batch_norm=True), num_classes=10, init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(32 * 49, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10))
    return net


def _tv_segmentation(models: Any, head: str) -> nn.Module:
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.segmentation import deeplabv3, fcn

    backbone = IntermediateLayerGetter(models.mobilenet_v2(width_mult=0.25).features, {"17": "out"})
    channels = 80
    if head == "fcn":
        net: nn.Module = fcn.FCN(backbone, fcn.FCNHead(channels, 8))
    else:
        net = deeplabv3.DeepLabV3(backbone, deeplabv3.DeepLabHead(channels, 8, atrous_rates=(1, 2)))

    class Out(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)["out"]

    return Out()


def _tv_resnet(models: Any, *, groups: int = 1) -> nn.Module:
    from torchvision.models.resnet import BasicBlock, Bottleneck

    net = models.ResNet(Bottleneck if groups > 1 else BasicBlock, [1, 1, 1, 1], num_classes=10, groups=groups,
                        width_per_group=2 if groups > 1 else 64)  # fmt: skip
    return net


TORCHVISION: dict[str, Callable[[], Made]] = {
    "tv-resnet": _tv(_tv_resnet),
    "tv-resnext": _tv(lambda m: _tv_resnet(m, groups=8)),
    "tv-vgg-bn": _tv(_tv_vgg),
    "tv-densenet": _tv(lambda m: m.DenseNet(8, (2, 2, 2), 16, num_classes=10)),
    "tv-squeezenet": _tv(lambda m: m.SqueezeNet("1_1", num_classes=10), 48),
    "tv-mobilenet-v2": _tv(lambda m: m.mobilenet_v2(width_mult=0.25, num_classes=10)),
    "tv-mobilenet-v3": _tv(_tv_mobilenet_v3),
    "tv-mnasnet": _tv(lambda m: m.MNASNet(0.25, num_classes=10)),
    "tv-shufflenet-v2": _tv(lambda m: m.ShuffleNetV2([2, 2, 2], [8, 16, 32, 64, 64], num_classes=10)),
    "tv-efficientnet": _tv(_tv_efficientnet),
    "tv-regnet": _tv(_tv_regnet),
    "tv-convnext": _tv(_tv_convnext),
    "tv-vit": _tv(lambda m: m.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10)),
    "tv-swin": _tv(lambda m: m.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)),
    "tv-maxvit": _tv(lambda m: m.MaxVit((32, 32), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=10)),
    "tv-fcn": _tv(lambda m: _tv_segmentation(m, "fcn")),
    "tv-deeplab-v3": _tv(lambda m: _tv_segmentation(m, "deeplab")),
}

# --- timm -------------------------------------------------------------------------------------------------------------

TIMM_TESTS = ("byobnet", "convnext", "convnext2", "efficientnet", "efficientnet_gn", "efficientnet_ln",
              "efficientnet_evos", "mambaout", "nfnet", "resnet", "vit", "vit2", "vit3", "vit4")  # fmt: skip
"""timm's own small networks, ``test_NAME``."""
TIMM: dict[str, tuple[str, dict[str, Any], int]] = {
    "timm-mixer": ("mixer_s32_224", {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_blocks": 2}, 32),
    "timm-resmlp": ("resmlp_12_224", {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_blocks": 2}, 32),
    "timm-deit": ("deit_tiny_distilled_patch16_224", {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}, 32),
    "timm-cait": ("cait_xxs24_224", {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}, 32),
    "timm-pit": ("pit_ti_224", {"img_size": 64, "base_dims": (8, 8), "depths": (1, 1), "heads": (2, 2)}, 64),
    "timm-beit": ("beit_base_patch16_224", {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}, 32),
    "timm-poolformer": ("poolformer_s12", {"layers": (1, 1, 1, 1), "embed_dims": (8, 16, 24, 32)}, 64),
    "timm-ghostnet": ("ghostnet_050", {"width": 0.3}, 32),
    "timm-hrnet": ("hrnet_w18_small", {}, 32),
    "timm-repvgg": ("repvgg_a0", {}, 32),
    "timm-res2net": ("res2net50_26w_4s", {"layers": (1, 1, 1, 1), "base_width": 8}, 32),
    "timm-eca-resnet": ("ecaresnet26t", {"layers": (1, 1, 1, 1)}, 32),
}  # fmt: skip


def _timm(name: str, options: dict[str, Any], size: int) -> Callable[[], Made]:
    def make() -> Made:
        torchvision_models()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options), images(size)

    return make


# --- transformers -----------------------------------------------------------------------------------------------------

_TEXT = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=32)  # fmt: skip
_VISION = dict(image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
               intermediate_size=48)  # fmt: skip
_KV = dict(_TEXT, num_key_value_heads=2)

TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    # name: (configuration, network, sizes, inputs, result)
    "bert": ("BertConfig", "BertForSequenceClassification", _TEXT, "tokens", "logits"),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", _TEXT, "tokens", "logits"),
    "distilbert": ("DistilBertConfig", "DistilBertModel", dict(vocab_size=64, dim=32, n_layers=2, n_heads=4,
                   hidden_dim=48, max_position_embeddings=32), "tokens", "last_hidden_state"),
    "albert": ("AlbertConfig", "AlbertModel", dict(_TEXT, embedding_size=16), "tokens", "last_hidden_state"),
    "electra": ("ElectraConfig", "ElectraModel", dict(_TEXT, embedding_size=16), "tokens", "last_hidden_state"),
    "mobilebert": ("MobileBertConfig", "MobileBertModel", dict(_TEXT, embedding_size=16, intra_bottleneck_size=16),
                   "tokens", "last_hidden_state"),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertModel", dict(_TEXT, embedding_size=32), "tokens",
                    "last_hidden_state"),
    "mpnet": ("MPNetConfig", "MPNetModel", _TEXT, "tokens", "last_hidden_state"),
    "deberta-v2": ("DebertaV2Config", "DebertaV2Model", dict(_TEXT, relative_attention=True,
                   pos_att_type=["p2c", "c2p"]), "tokens", "last_hidden_state"),
    "fnet": ("FNetConfig", "FNetModel", dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, intermediate_size=48,
             max_position_embeddings=32), "tokens", "last_hidden_state"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32),
             "tokens", "logits"),
    "gpt-neo": ("GPTNeoConfig", "GPTNeoForCausalLM", dict(vocab_size=64, hidden_size=32, num_layers=2, num_heads=4,
                max_position_embeddings=32, attention_types=[[["global", "local"], 1]], window_size=4), "tokens",
                "logits"),
    "gpt-neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _TEXT, "tokens", "logits"),
    "opt": ("OPTConfig", "OPTForCausalLM", dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, ffn_dim=48,
            num_attention_heads=4, max_position_embeddings=32, word_embed_proj_dim=32), "tokens", "logits"),
    "bloom": ("BloomConfig", "BloomForCausalLM", dict(vocab_size=64, hidden_size=32, n_layer=2, n_head=4), "tokens",
              "logits"),
    "falcon": ("FalconConfig", "FalconForCausalLM", dict(vocab_size=64, hidden_size=32, num_hidden_layers=2,
               num_attention_heads=4), "tokens", "logits"),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _KV, "tokens", "logits"),
    "mistral": ("MistralConfig", "MistralForCausalLM", dict(_KV, sliding_window=6), "tokens", "logits"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _KV, "tokens", "logits"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", dict(_KV, head_dim=8), "tokens", "logits"),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", dict(_KV, head_dim=8, sliding_window=6), "tokens", "logits"),
    "phi": ("PhiConfig", "PhiForCausalLM", _KV, "tokens", "logits"),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", _KV, "tokens", "logits"),
    "granite": ("GraniteConfig", "GraniteForCausalLM", _KV, "tokens", "logits"),
    "codegen": ("CodeGenConfig", "CodeGenForCausalLM", dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4,
                n_positions=32, rotary_dim=4), "tokens", "logits"),
    "mamba": ("MambaConfig", "MambaForCausalLM", dict(vocab_size=64, hidden_size=16, num_hidden_layers=1, state_size=4,
              expand=2), "tokens", "logits"),
    "t5": ("T5Config", "T5ForConditionalGeneration", dict(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2,
           num_heads=4), "two texts", "logits"),
    "bart": ("BartConfig", "BartForConditionalGeneration", dict(vocab_size=64, d_model=32, encoder_layers=2,
             decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
             decoder_ffn_dim=48, max_position_embeddings=32), "two texts", "logits"),
    "marian": ("MarianConfig", "MarianMTModel", dict(vocab_size=64, d_model=32, encoder_layers=1, decoder_layers=1,
               encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
               max_position_embeddings=32, pad_token_id=0), "two texts", "logits"),
    "vit": ("ViTConfig", "ViTForImageClassification", _VISION, "images", "logits"),
    "deit": ("DeiTConfig", "DeiTModel", _VISION, "images", "last_hidden_state"),
    "dinov2": ("Dinov2Config", "Dinov2Model", dict(_VISION, mlp_ratio=2), "images", "last_hidden_state"),
    "yolos": ("YolosConfig", "YolosForObjectDetection", dict(_VISION, image_size=[32, 32], num_detection_tokens=4),
              "images", "logits"),
    "swin": ("SwinConfig", "SwinModel", dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2],
             num_heads=[2, 4], window_size=4), "images", "last_hidden_state"),
    "segformer": ("SegformerConfig", "SegformerForSemanticSegmentation", dict(depths=[1, 1, 1, 1],
                  hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16), "images 64",
                  "logits"),
    "convnext": ("ConvNextConfig", "ConvNextForImageClassification", dict(hidden_sizes=[8, 16, 24, 32],
                 depths=[1, 1, 1, 1]), "images 64", "logits"),
    "resnet": ("ResNetConfig", "ResNetForImageClassification", dict(embedding_size=8, hidden_sizes=[16, 32],
               depths=[1, 1], layer_type="bottleneck"), "images", "logits"),
    "regnet": ("RegNetConfig", "RegNetForImageClassification", dict(embedding_size=8, hidden_sizes=[16, 32],
               depths=[1, 1], groups_width=8), "images", "logits"),
    "mobilevit": ("MobileViTConfig", "MobileViTForImageClassification", dict(image_size=64,
                  hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32], num_attention_heads=4),
                  "images 64", "logits"),
    "pvt": ("PvtConfig", "PvtForImageClassification", dict(image_size=64, hidden_sizes=[8, 16, 16, 32],
            depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], mlp_ratios=[2, 2, 2, 2]), "images 64", "logits"),
    "levit": ("LevitConfig", "LevitForImageClassification", dict(image_size=64, hidden_sizes=[16, 32, 48],
              num_attention_heads=[2, 4, 6], depths=[1, 1, 1], key_dim=[8, 8, 8]), "images 64", "logits"),
    "clip-vision": ("CLIPVisionConfig", "CLIPVisionModel", dict(_VISION, projection_dim=16), "images",
                    "last_hidden_state"),
    "clip-text": ("CLIPTextConfig", "CLIPTextModel", _TEXT, "tokens", "last_hidden_state"),
    "siglip-vision": ("SiglipVisionConfig", "SiglipVisionModel", _VISION, "images", "last_hidden_state"),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForCTC", dict(vocab_size=16, hidden_size=32, num_hidden_layers=1,
                 num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 4),
                 num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, num_feat_extract_layers=2), "sound",
                 "logits"),
    "hubert": ("HubertConfig", "HubertModel", dict(vocab_size=16, hidden_size=32, num_hidden_layers=1,
               num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 4),
               num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, num_feat_extract_layers=2), "sound",
               "last_hidden_state"),
    "whisper-encoder": ("WhisperConfig", "WhisperModel.encoder", dict(vocab_size=64, d_model=32, encoder_layers=1,
                        decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                        decoder_ffn_dim=48, num_mel_bins=16, max_source_positions=16, pad_token_id=0, bos_token_id=1,
                        eos_token_id=2, decoder_start_token_id=1), "mel", "last_hidden_state"),
    "ast": ("ASTConfig", "ASTModel", dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=48, patch_size=8, frequency_stride=8, time_stride=8, max_length=32, num_mel_bins=16),
            "spectrum", "last_hidden_state"),
    "time-series": ("PatchTSTConfig", "PatchTSTForPrediction", dict(num_input_channels=3, context_length=32,
                    patch_length=8, patch_stride=8, prediction_length=8, d_model=16, num_attention_heads=2,
                    num_hidden_layers=2, ffn_dim=24), "series", "prediction_outputs"),
}  # fmt: skip


def _inputs(kind: str) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    word, _, size = kind.partition(" ")
    if kind == "two texts":
        return ("input_ids", "decoder_input_ids"), (*tokens(), *tokens(length=8))
    if word == "images":
        return ("pixel_values",), images(int(size or 32))
    return {
        "tokens": (("input_ids",), tokens()),
        "sound": (("input_values",), (torch.randn(BATCH, 400),)),
        "mel": (("input_features",), (torch.randn(BATCH, 16, 32),)),
        "spectrum": (("input_values",), (torch.randn(BATCH, 32, 16),)),
        "series": (("past_values",), (torch.randn(BATCH, 32, 3),)),
    }[word]


def _transformer(config: str, network: str, sizes: dict[str, Any], kind: str, pick: str) -> Callable[[], Made]:
    def make() -> Made:
        torchvision_models()
        import transformers

        first, _, part = network.partition(".")
        made = getattr(transformers, first)(getattr(transformers, config)(**sizes))
        names, given = _inputs(kind)
        has_cache = hasattr(made.config, "use_cache")
        if has_cache:
            made.config.use_cache = False
        return Picked(getattr(made, part) if part else made, names, pick), given

    return make


# --- networks of PyTorch's own layers ---------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """An embedding, a recurrent layer, a classifier of the last step."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.table, self.layer, self.out = nn.Embedding(64, 16), layer, nn.Linear(width, 10)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of ten classes."""
        return self.out(self.layer(self.table(ids))[0][:, -1])


class Unrolled(nn.Module):
    """A cell applied step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(16, 24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of ten classes."""
        state = torch.zeros(x.shape[0], 24)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.out(state)


class UNet(nn.Module):
    """Two levels down and up, with skips."""

    def __init__(self, mode: str, conv: type[nn.Module] = nn.Conv2d) -> None:
        super().__init__()
        self.mode = mode
        self.one, self.two, self.three = (self._block(*c) for c in ((3, 8), (8, 16), (16, 16)))
        self.up = nn.ConvTranspose2d(16, 16, 2, 2) if mode == "transposed" else nn.Upsample(
            scale_factor=2, mode=mode, align_corners=None if mode == "nearest" else False)  # fmt: skip
        self.last = self._block(32, 8)
        self.out = nn.Conv2d(16, 4, 1)

    def _block(self, read: int, made: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(read, made, 3, padding=1), nn.GroupNorm(4, made), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Scores of four classes by pixel."""
        one = self.one(x)
        two = self.two(nn.functional.max_pool2d(one, 2))
        three = self.three(nn.functional.avg_pool2d(two, 2))
        two = self.last(torch.cat([self.up(three), two], 1))
        return self.out(torch.cat([nn.functional.interpolate(two, scale_factor=2.0, mode="nearest"), one], 1))


class Detector(nn.Module):
    """A backbone, a feature pyramid, and a head shared by its levels, in the manner of YOLO."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, 2 * c, 3, 2, 1), nn.BatchNorm2d(2 * c), nn.SiLU()) for c in (8, 16)
        )
        self.side = nn.ModuleList(nn.Conv2d(c, 16, 1) for c in (8, 16, 32))
        self.head = nn.Conv2d(16, 3 * 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Boxes of all levels: centre, size, objectness, class."""
        maps = [self.stem(x)]
        for block in self.down:
            maps.append(block(maps[-1]))
        top: Tensor | None = None
        found = []
        for side, level in reversed(list(zip(self.side, maps, strict=True))):
            here = side(level)
            top = here if top is None else here + nn.functional.interpolate(top, scale_factor=2.0, mode="nearest")
            cells = self.head(top)
            batch, _, high, wide = cells.shape
            found.append(cells.view(batch, 3, 6, high * wide).permute(0, 1, 3, 2).reshape(batch, -1, 6))
        raw = torch.cat(found, 1)
        return torch.cat([raw[..., :2].sigmoid(), raw[..., 2:4].exp(), raw[..., 4:].sigmoid()], -1)


class Speech(nn.Module):
    """A spectrogram by convolution, a bidirectional GRU, scores by step."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.ReflectionPad1d(4), nn.Conv1d(1, 16, 9, 4), nn.BatchNorm1d(16), nn.ReLU())
        self.rnn = nn.GRU(16, 12, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Log probabilities."""
        steps = self.front(x[:, None]).transpose(1, 2)
        return self.out(self.rnn(steps)[0]).log_softmax(-1)


class Autoencoder(nn.Module):
    """Convolutions down, transposed convolutions up, a bottleneck with noise left out."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU())
        self.mean, self.spread = nn.Linear(16 * 64, 6), nn.Linear(16 * 64, 6)
        self.back = nn.Linear(6, 16 * 64)
        self.up = nn.Sequential(nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), nn.PReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The picture again."""
        flat = self.down(x).flatten(1)
        hidden = self.mean(flat) + (0.5 * self.spread(flat)).exp()
        return self.up(self.back(hidden).view(-1, 16, 8, 8)).tanh()


class Recommender(nn.Module):
    """Tables for sparse features, a perceptron for dense ones, products of all pairs (DLRM)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") if i == 9 else nn.Embedding(50, 8)
                                    for i in range(4))  # fmt: skip
        self.dense = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 10, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """A click's log odds."""
        x = self.dense(dense)
        rows = torch.stack([x, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = rows @ rows.transpose(1, 2)
        left, right = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([x, pairs[:, left, right]], 1))


class Graphs(nn.Module):
    """Two rounds of messages along the edges of a graph (scatter-add)."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Scores by node."""
        for layer in (self.one, self.two):
            sent = layer(x)[edges[0]]
            x = torch.zeros(x.shape[0], sent.shape[1]).index_add(0, edges[1], sent).relu() + layer(x)
        return x


LAYERS: dict[str, Callable[[], Made]] = {
    "lstm": lambda: (Recurrent(nn.LSTM(16, 24, batch_first=True), 24), tokens()),
    "lstm-2-both-ways": lambda: (Recurrent(nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True), 24), tokens()),
    "gru": lambda: (Recurrent(nn.GRU(16, 24, batch_first=True), 24), tokens()),
    "rnn": lambda: (Recurrent(nn.RNN(16, 24, batch_first=True), 24), tokens()),
    "gru-unrolled": lambda: (Unrolled(), (torch.randn(BATCH, 6, 16),)),
    "unet-nearest": lambda: (UNet("nearest"), images()),
    "unet-bilinear": lambda: (UNet("bilinear"), images()),
    "unet-transposed": lambda: (UNet("transposed"), images()),
    "detector": lambda: (Detector(), images()),
    "speech-gru": lambda: (Speech(), (torch.randn(BATCH, 200),)),
    "autoencoder": lambda: (Autoencoder(), images()),
    "torch-transformer": lambda: (nn.Transformer(32, 4, 1, 1, 48, batch_first=True), (torch.randn(BATCH, 9, 32),
                                  torch.randn(BATCH, 7, 32))),
    "recommender": lambda: (Recommender(), (torch.randn(BATCH, 6), torch.randint(0, 50, (BATCH, 4)))),
    "graph-network": lambda: (Graphs(), (torch.randn(12, 8), torch.randint(0, 12, (2, 30)))),
}  # fmt: skip


def catalogue() -> dict[str, Callable[[], Made]]:
    """All architectures, by name."""
    return {
        **TORCHVISION,
        **{f"timm-{name}": _timm(f"test_{name}", {}, 64) for name in TIMM_TESTS},
        **{name: _timm(*how) for name, how in TIMM.items()},
        **{f"hf-{name}": _transformer(*how) for name, how in TRANSFORMERS.items()},
        **LAYERS,
    }


def export(make: Callable[[], Made], target: Path, *, optimize: bool) -> None:
    """Writes one network as ONNX, all weights inside."""
    torch.manual_seed(0)
    network, given = make()
    network.eval()
    for parameter in network.parameters():
        # Norms and biases that are one value throughout hide mistakes: a scale that is left out, a bias added twice.
        if parameter.dim() <= 1 and parameter.numel() > 1:
            parameter.data += 0.05 * torch.randn_like(parameter)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(network, given, dynamo=True, optimize=optimize, verbose=False)
    assert program is not None
    program.save(str(target))


def main() -> None:
    """See the top of this file."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out", type=Path)
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--list", action="store_true")
    given = arguments.parse_args()
    known = catalogue()
    if given.list:
        print(*known, sep="\n")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.CRITICAL)
    for name in given.names or known:
        for form in ("", ".raw"):
            target = given.out / f"{name}{form}.onnx"
            failed = target.with_suffix(".error")
            if target.exists() or failed.exists():
                continue
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    export(known[name], target, optimize=not form)
                print(f"{target.name}: {target.stat().st_size} bytes", flush=True)
            except Exception as error:  # noqa: BLE001 -- whatever PyTorch raises is the exporter's answer
                failed.write_text("".join(traceback.format_exception(error)[-3:]))
                print(f"{target.name}: {type(error).__name__}: {str(error).strip()[:200]}", flush=True)


if __name__ == "__main__":
    main()
