"""The corpus of the world: networks that other people wrote, small and with random weights, exported by PyTorch.

    python tests/tools/world_models.py OUT [NAME ...] [--list] [--committed]

Runs in an environment of its own (`tests/tools/world-requirements.txt`; `make world` makes it). Writes, for each
architecture, ``OUT/NAME.onnx`` as PyTorch's exporter writes it after its optimizer and ``OUT/NAME.raw.onnx`` before
it; ``OUT/NAME.error`` holds the exporter's message where it refuses the network. What is there already is left.

``--committed`` writes those that stand in `tests/models/world`: transformers at half the width, and without the
exporter's notes on where in which source file each op comes from.
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

import onnx
import torch
import yaml
from torch import Tensor, nn

from world_layers import BATCH, LAYERS, Made, images, tokens


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
              "efficientnet_evos", "mambaout", "nfnet", "resnet", "vit", "vit2", "vit4")  # fmt: skip
"""timm's own small networks, ``test_NAME``."""
TIMM: dict[str, tuple[str, dict[str, Any], int]] = {
    "timm-deit": ("deit_tiny_distilled_patch16_224", {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}, 32),
    "timm-cait": ("cait_xxs24_224", {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}, 32),
    "timm-beit": ("beit_base_patch16_224", {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}, 32),
    "timm-hrnet": ("hrnet_w18_small", {}, 32),
    "timm-repvgg": ("repvgg_a0", {}, 32),
    "timm-res2net": ("res2net50_26w_4s", {"layers": (1, 1, 1, 1), "base_width": 8}, 32),
    "timm-eca-resnet": ("ecaresnet26t", {"layers": (1, 1, 1, 1)}, 32),
}  # fmt: skip


def _timm_class(module: str, name: str, options: dict[str, Any], size: int) -> Callable[[], Made]:
    """A network of timm whose sizes its entry points fix."""

    def make() -> Made:
        torchvision_models()
        import timm.models

        return getattr(getattr(timm.models, module), name)(num_classes=10, **options), images(size)

    return make


TIMM_CLASSES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "timm-mixer": ("mlp_mixer", "MlpMixer", {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_blocks": 2}, 32),
    "timm-poolformer": ("metaformer", "MetaFormer", {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}, 64),
    "timm-pit": ("pit", "PoolingVisionTransformer", {"img_size": 64, "patch_size": 8, "stride": 4, "stem_type":
                 "overlap", "base_dims": (8, 8, 8), "depth": (1, 1, 1), "heads": (2, 2, 2), "mlp_ratio": 2}, 64),
}  # fmt: skip


def _timm(name: str, options: dict[str, Any], size: int) -> Callable[[], Made]:
    def make() -> Made:
        torchvision_models()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options), images(size)

    return make


# --- transformers -----------------------------------------------------------------------------------------------------

TRANSFORMERS = yaml.safe_load((Path(__file__).parent / "world-transformers.yaml").read_text())


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


def _transformer(
    configuration: str, network: str, reads: str, result: str, sizes: dict[str, Any]
) -> Callable[[], Made]:
    def make() -> Made:
        torchvision_models()
        import transformers

        first, _, part = network.partition(".")
        made = getattr(transformers, first)(getattr(transformers, configuration)(**sizes))
        names, given = _inputs(reads)
        has_cache = hasattr(made.config, "use_cache")
        if has_cache:
            made.config.use_cache = False
        return Picked(getattr(made, part) if part else made, names, result), given

    return make


COMMITTED = (
    "detector", "graph-network", "gru", "hf-bert", "hf-gpt2", "hf-llama", "hf-t5", "hf-vit", "lstm-2-both-ways",
    "recommender", "speech-gru", "unet-bilinear",
)  # fmt: skip
"""Those of which a small file is part of the repository."""


def halved(sizes: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a transformer of half the width."""
    narrower = {32: 16, 48: 24}
    lasting = ("image_size", "max_position_embeddings", "n_positions")
    return {name: size if name in lasting else narrower.get(size, size) if isinstance(size, int) else size
            for name, size in sizes.items()}  # fmt: skip


def bare(path: Path) -> None:
    """Takes the exporter's notes out of a file."""
    model = onnx.load(path)
    for notes in (model.metadata_props, model.graph.metadata_props):
        del notes[:]
    graph = model.graph
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer, *model.functions):
        del part.metadata_props[:]
        part.doc_string = ""
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
            node.doc_string = ""
    path.write_bytes(model.SerializeToString(deterministic=True))


def catalogue() -> dict[str, Callable[[], Made]]:
    """All architectures, by name."""
    return {
        **TORCHVISION,
        **{f"timm-{name}": _timm(f"test_{name}", {}, 64) for name in TIMM_TESTS},
        **{name: _timm(*how) for name, how in TIMM.items()},
        **{name: _timm_class(*how) for name, how in TIMM_CLASSES.items()},
        **{f"hf-{name}": _transformer(**how) for name, how in TRANSFORMERS.items()},
        **LAYERS,
    }


def export(make: Callable[[], Made], target: Path, *, optimize: bool) -> None:
    """Writes one network as ONNX, all weights inside.

    With the exporter's optimizer, norms and biases are ones and zeros, as an untrained network has them: the optimizer
    writes equal ones once. Without, they are drawn: one value throughout hides mistakes.
    """
    torch.manual_seed(0)
    network, given = make()
    network.eval()
    for parameter in network.parameters():
        if not optimize and parameter.dim() <= 1 and parameter.numel() > 1:
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
    arguments.add_argument("--committed", action="store_true")
    given = arguments.parse_args()
    known = catalogue()
    if given.committed:
        known |= {
            f"hf-{name}": _transformer(**{**how, "sizes": halved(how["sizes"])}) for name, how in TRANSFORMERS.items()
        }
    if given.list:
        print(*known, sep="\n")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.CRITICAL)
    for name in given.names or (COMMITTED if given.committed else known):
        for form in ("",) if given.committed else ("", ".raw"):
            target = given.out / f"{name}{form}.onnx"
            failed = target.with_suffix(".error")
            if target.exists() or failed.exists():
                continue
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    export(known[name], target, optimize=not form)
                if given.committed:
                    bare(target)
                print(f"{target.name}: {target.stat().st_size} bytes", flush=True)
            except Exception as error:  # noqa: BLE001 -- whatever PyTorch raises is the exporter's answer
                failed.write_text("".join(traceback.format_exception(error)[-3:]))
                print(f"{target.name}: {type(error).__name__}: {str(error).strip()[:200]}", flush=True)


if __name__ == "__main__":
    main()
