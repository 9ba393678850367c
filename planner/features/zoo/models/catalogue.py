"""The zoo's models by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from planner.errors import UsageError, did_you_mean
from planner.features.zoo.models.convolutional import alexnet, cnn, lenet_5, vgg_16
from planner.features.zoo.models.family import Asked, Family, Maker
from planner.features.zoo.models.inception import inception_v3
from planner.features.zoo.models.perceptron import mlp
from planner.features.zoo.models.recurrent import rnn
from planner.features.zoo.models.residual import resnet
from planner.features.zoo.models.today import TODAY
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph

if TYPE_CHECKING:
    from planner.training.update.precision import Precision


def _mlp(match: re.Match[str]) -> Maker:
    def make(request: Asked) -> Graph:
        if request.optimizer != "sgd":
            raise UsageError(f"{match.string} is trained with sgd, not with {request.optimizer!r}")
        return mlp(int(match["layers"]), int(match["width"]), request.batch)

    return make


def _cnn(match: re.Match[str]) -> Maker:
    sizes = (int(match["layers"]), int(match["filters"]), int(match["image"]))
    return lambda request: cnn(*sizes, batch=request.batch, optimizer=request.optimizer)


def _plain(function: Callable[..., Graph]) -> Callable[[re.Match[str]], Maker]:
    return lambda match: lambda request: function(batch=request.batch, optimizer=request.optimizer)


def _resnet(match: re.Match[str]) -> Maker:
    depth, widening = int(match["depth"]), int(match.groupdict().get("widening") or 1)
    return lambda request: resnet(depth, batch=request.batch, widening=widening, optimizer=request.optimizer)


def _rnn(match: re.Match[str]) -> Maker:
    layers, hidden = int(match["layers"]), 1024 * int(match["hidden"])
    return lambda request: rnn(layers, hidden, batch=request.batch, optimizer=request.optimizer)


def _gpt(match: re.Match[str]) -> Maker:
    blocks, width = int(match["blocks"]), int(match["width"])
    heads = int(match["heads"]) if match["heads"] else max(1, width // (64 if width < _WIDE else 128))
    shape = GptShape(blocks, width, heads, 1024 if width < _WIDE else 2048, language=bool(match["language"]))
    return lambda request: gpt(match.string, shape, batch=request.batch, optimizer=request.optimizer)


_WIDE = 2048
"""From here on GPT-3's heads have 128 elements (Brown et al. 2020, table 2.1), and samples 2048 tokens."""
_PUBLISHED: Final[Mapping[str, GptShape]] = MappingProxyType(
    {
        "gpt2": GptShape(12, 768, 12, 1024, language=True, bias=True),
        "gpt2-xl": GptShape(48, 1600, 25, 1024, language=True, bias=True),
        "gpt3-175b": GptShape(96, 12288, 96, 2048, language=True, bias=True),
    }
)


def _published(match: re.Match[str]) -> Maker:
    name = match.string
    return lambda request: gpt(name, _PUBLISHED[name], batch=request.batch, optimizer=request.optimizer)


def _pattern(text: str) -> re.Pattern[str]:
    """A name's pattern, where {x} is a number from 1, called x."""
    return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[1-9][0-9]{0,6})", text))


_WRESNETS = tuple(f"wresnet-{depth}-{widening}" for depth in (50, 101, 152) for widening in (4, 6, 8, 10))
_RNNS = ("rnn-4-8k", *(f"rnn-{layers}-{size}k" for layers in (6, 8, 10) for size in (4, 6, 8)))

PAPERS: Final = (
    Family(
        "mlp-LxD",
        "L square fully-connected layers of width D; SoyBean, section 2.2 and figure 8",
        {"mlp-5x300": 400, "mlp-4x8192": 512, "mlp-4x12288": 2048},
        512,
        "sgd",
        _pattern("mlp-{layers}x{width}"),
        _mlp,
    ),
    Family(
        "cnn-LxF-S",
        "L 3x3 convolutions of F filters on SxS images; SoyBean, figure 9",
        {"cnn-5x2048-6": 256, "cnn-5x512-24": 256},
        256,
        "sgd",
        _pattern("cnn-{layers}x{filters}-{image}"),
        _cnn,
    ),
    Family(
        "lenet-5", "LeCun et al. 1998; ICML'18, table 3", {"lenet-5": 256}, 256, "sgd", _pattern("lenet-5"),
        _plain(lenet_5),
    ),
    Family(
        "alexnet", "Krizhevsky 2014, one tower; SoyBean, figure 10; ICML'18", {"alexnet": 256}, 256, "sgd",
        _pattern("alexnet"), _plain(alexnet),
    ),
    Family(
        "vgg-16", "Simonyan and Zisserman 2014; SoyBean, figure 10; ICML'18", {"vgg-16": 256}, 256, "sgd",
        _pattern("vgg-16"), _plain(vgg_16),
    ),
    Family(
        "inception-v3", "Szegedy et al. 2016; ICML'18", {"inception-v3": 256}, 256, "sgd", _pattern("inception-v3"),
        _plain(inception_v3),
    ),
    Family(
        "resnet-D",
        "D layers, 50, 101 or 152; He et al. 2016",
        {f"resnet-{depth}": 256 for depth in (50, 101, 152)},
        256,
        "momentum",
        _pattern("resnet-(?P<depth>50|101|152)"),
        _resnet,
    ),
    Family(
        "wresnet-D-W",
        "ResNet of D layers with W times as many channels; Tofu, section 7.1",
        {name: {"wresnet-50-4": 128, "wresnet-152-10": 8}.get(name, 32) for name in _WRESNETS},
        32,
        "adagrad",
        _pattern("wresnet-(?P<depth>50|101|152)-{widening}"),
        _resnet,
    ),
    Family(
        "rnn-L-Hk",
        "L layers of 1024 H LSTM units, unrolled 20 steps; Tofu, section 7.1",
        {name: 128 if name == "rnn-10-8k" else 512 for name in _RNNS},
        512,
        "adagrad",
        _pattern("rnn-{layers}-{hidden}k"),
        _rnn,
    ),
    Family(
        "gpt-LxD[-Hh][-lm]",
        "L decoder blocks of width D with H heads, no biases; lm: with embedding and language-model head",
        {"gpt-2x1024": 8, "gpt-96x12288": 8},
        8,
        "sgd",
        _pattern("gpt-{blocks}x{width}(?:-{heads}h)?(?P<language>-lm)?"),
        _gpt,
    ),
    Family(
        "gpt2, gpt2-xl, gpt3-175b",
        "Radford et al. 2019 (table 2) and Brown et al. 2020 (table 2.1), with biases",
        dict.fromkeys(_PUBLISHED, 8),
        8,
        "adam",
        re.compile("|".join(map(re.escape, _PUBLISHED))),
        _published,
    ),
)  # fmt: skip
"""The families of the papers that tofu is built on, small models first. Batches: of MLPs and CNNs SoyBean's; 256, that
is 32 for each of 8 GPUs (ICML'18, section 6), of the classification networks; of WResNets those that Tofu's section 7.2
names (128 for 50-4, 8 for 152-10) and 32 for the others; of RNNs 128 for 10-8k and 512, that of the ideal baseline, for
the others."""


FAMILIES: Final = (*PAPERS, *TODAY)
"""Every family."""


def names(families: tuple[Family, ...] = FAMILIES) -> tuple[str, ...]:
    """The models that are listed; others of the same forms can be built, too."""
    return tuple(name for family in families for name in family.members)


def family_of(name: str) -> Family:
    """The family that a name belongs to.

    Raises:
        UsageError: there is no model of this name.
    """
    for family in FAMILIES:
        if family.pattern.fullmatch(name):
            return family
    raise UsageError(
        f"the zoo has no model {name!r}",
        facts=tuple(f"{family.form}: {family.about}" for family in FAMILIES),
        hint=did_you_mean(name, names())
        or "write a name of one of these forms, such as gpt-2x1024; tofu zoo lists them",
    )


def build(
    name: str,
    *,
    batch: int | None = None,
    optimizer: str | None = None,
    precision: Precision | None = None,
    seq: int | None = None,
    layers: int | None = None,
) -> Graph:
    """The training graph of a model: forward, backward and weight update, weights without values.

    Args:
        name: one of ``names()``, or another of a family's form, such as ``wresnet-152-12`` or ``gpt-24x2048``.
        batch: samples of an iteration; None: the paper's.
        optimizer: of ``planner.training.update.optimizers``; None: the paper's.
        precision: what the model computes in; None: what it was trained in. Weights are of float32.
        seq: tokens of a sample, of a model of language; None: its own.
        layers: of a network of equal blocks; None: its own.

    Raises:
        UsageError: there is no model of this name, no such optimizer, the batch is below 1, or the model has no
            such option.
    """
    family = family_of(name)
    batch = family.batch_of(name) if batch is None else batch
    if batch < 1:
        raise UsageError(f"{name}: a batch of {batch} has no samples")
    family.check(name, precision=precision, seq=seq, layers=layers)
    match = family.pattern.fullmatch(name)
    assert match is not None, "family_of has matched it"
    request = Asked(batch, optimizer or family.optimizer, precision or family.precision, seq, layers)
    return family.make(match)(request)
