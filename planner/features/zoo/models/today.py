"""Networks that are trained today, at their published sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from planner.features.zoo.models.family import Asked, Family
from planner.features.zoo.models.llama import LLAMA_3, llama
from planner.features.zoo.models.mixture import MIXTRAL, MIXTRAL_EXPERTS, mixture
from planner.features.zoo.models.network import Network
from planner.features.zoo.models.step import training_step
from planner.features.zoo.models.unet import SD_1, unet
from planner.features.zoo.models.vision import DIT_XL, VIT_H, dit, vit
from planner.features.zoo.models.whisper import WHISPER_LARGE, whisper
from planner.graph.core.model import Graph

_Builder: TypeAlias = Callable[[str, int, int | None, int | None], Network]
"""From name, batch, tokens of a sample and blocks to the network; None where they are its own."""
_OPTIMIZER: Final = "adamw"


@dataclass(frozen=True, slots=True)
class Published:
    """A network, and how AdamW was told to train it."""

    build: _Builder
    rate: float
    """The highest learning rate."""
    decay: float = 0.0
    """Of weights; biases and scales of normalisations have none."""
    beta2: float = 0.999
    epsilon: float | None = None


def _llama(name: str, batch: int, seq: int | None, layers: int | None) -> Network:
    shape = LLAMA_3[name]
    return llama(name, replace(shape, sequence=seq or shape.sequence, blocks=layers or shape.blocks), batch=batch)


def _mixture(name: str, batch: int, seq: int | None, layers: int | None) -> Network:
    shape = replace(MIXTRAL, sequence=seq or MIXTRAL.sequence, blocks=layers or MIXTRAL.blocks)
    return mixture(name, shape, MIXTRAL_EXPERTS, batch=batch)


def _vit(name: str, batch: int, _seq: int | None, layers: int | None) -> Network:
    return vit(name, replace(VIT_H, blocks=layers or VIT_H.blocks), batch=batch)


def _dit(name: str, batch: int, _seq: int | None, layers: int | None) -> Network:
    return dit(name, replace(DIT_XL, blocks=layers or DIT_XL.blocks), batch=batch)


def _unet(name: str, batch: int, _seq: int | None, _layers: int | None) -> Network:
    return unet(name, SD_1, batch=batch)


def _whisper(name: str, batch: int, seq: int | None, layers: int | None) -> Network:
    shape = replace(WHISPER_LARGE, blocks=layers or WHISPER_LARGE.blocks, sequence=seq or WHISPER_LARGE.sequence)
    return whisper(name, shape, batch=batch)


_NETWORKS: Final[Mapping[str, Published]] = MappingProxyType(
    {
        "llama3-8b": Published(_llama, 3e-4, 0.1, 0.95),
        "llama3-70b": Published(_llama, 1.5e-4, 0.1, 0.95),
        "llama3-405b": Published(_llama, 8e-5, 0.1, 0.95),
        "vit-h": Published(_vit, 3e-4, 0.1),
        "dit-xl": Published(_dit, 1e-4),
        "sd-unet": Published(_unet, 1e-4, 0.01),
        "whisper-large": Published(_whisper, 1.75e-4, 0.1, 0.98, 1e-6),
        "moe-8x7b": Published(_mixture, 3e-4, 0.1, 0.95),
    }
)
"""Rates: Dubey et al. 2024, table 3; Dosovitskiy et al. 2021, table 3; Peebles and Xie 2023, section 4; the card of
Stable Diffusion 1; Radford et al. 2023, appendix F. Other numbers: of Llama 3 those of Llama 2 (Touvron et al. 2023);
of Mixtral nothing is published, so it has Llama's."""


def network(name: str, *, batch: int, seq: int | None = None, layers: int | None = None) -> Network:
    """The forward model of one of these networks, and its loss.

    Args:
        name: of a member of ``TODAY``.
        batch: samples.
        seq: tokens of a sample; None: its own.
        layers: blocks; None: as many as published.
    """
    return _NETWORKS[name].build(name, batch, seq, layers)


def _make(match: re.Match[str]) -> Callable[[Asked], Graph]:
    name = match.string

    def make(request: Asked) -> Graph:
        # Imported here: who only lists the models needs no gradient rules.
        from planner.training.update.optimizers import Hyper

        net = network(name, batch=request.batch, seq=request.seq, layers=request.layers)
        published = _NETWORKS[name]
        hyper = Hyper(beta2=published.beta2, epsilon=published.epsilon, weight_decay=published.decay)
        return training_step(
            net.model,
            net.output,
            loss=net.loss,
            optimizer=request.optimizer,
            learning_rate=published.rate,
            precision=request.precision,
            hyper=hyper if request.optimizer == _OPTIMIZER else None,
        )

    return make


def _family(about: str, batch: int, *names: str, low: bool = False, options: str = "precision layers") -> Family:
    """Networks with a name of their own each, of ``batch`` samples; ``low``: they compute in bfloat16."""
    return Family(
        ", ".join(names),
        about,
        dict.fromkeys(names, batch),
        batch,
        _OPTIMIZER,
        re.compile("|".join(map(re.escape, names))),
        _make,
        "bfloat16" if low else "float32",
        frozenset(options.split()),
    )


_LANGUAGE: Final = "precision layers seq"

TODAY: Final = (
    _family(
        "Dubey et al. 2024; 8.03, 70.6 and 405.9 billion parameters, samples of 4,096 tokens", 8, *LLAMA_3,
        low=True, options=_LANGUAGE,
    ),
    _family("ViT-H/14, Dosovitskiy et al. 2021; 632 million parameters, images of 224x224", 256, "vit-h"),
    _family("DiT-XL/2, Peebles and Xie 2023; 675 million parameters, latents of 32x32", 256, "dit-xl"),
    _family(
        "U-Net of Stable Diffusion 1, Rombach et al. 2022; 860 million parameters, latents of 64x64", 64, "sd-unet",
        options="precision",
    ),
    _family(
        "Radford et al. 2023, third version; 1.54 billion parameters, 30 seconds and 448 tokens", 32, "whisper-large",
        options=_LANGUAGE,
    ),
    _family(
        "Mixtral 8x7B, Jiang et al. 2024, routed with a capacity; 46.7 billion parameters, samples of 4,096 tokens", 8,
        "moe-8x7b", low=True, options=_LANGUAGE,
    ),
)  # fmt: skip
"""Every family of today. Batches are a node's, not those of the published clusters; DiT-XL's is the published one."""
