"""The command line: parses, calls ``planner.api``, prints. Nothing is decided here.

The result goes to stdout, everything else to stderr. What is heavy (onnx, onnxruntime, numpy, rich) is imported when
a command runs, so that ``tofu --help`` is quick.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import click

from planner.errors import TofuError, UsageError, did_you_mean
from planner.report.text import printable

Result = TypeVar("Result")

EXIT_DONE = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_BUG = 4
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class _Number(click.ParamType[float]):
    """A number within bounds; click's FloatRange lets nan through."""

    name = "number"

    def __init__(self, wanted: str, accepts: Callable[[float], bool]) -> None:
        self._wanted = wanted
        self._accepts = accepts

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self._accepts(number):
            self.fail(f"{value!r} is not {self._wanted}", param, ctx)
        return number


_POSITIVE = _Number("a finite number above zero", lambda number: 0 < number < math.inf)
_OPTIMIZERS = ["sgd", "momentum", "nesterov", "adagrad", "adam", "adamw", "adamw_after"]
"""Those of planner.training.optimizers, which is not imported for its names alone."""
_SHARE = _Number("a number from 0 up to, and without, 1", lambda number: 0 <= number < 1)


class _Numbers(click.ParamType[tuple[float, ...]]):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = (math.nan,)
        if not all(0 <= number < math.inf for number in numbers):
            self.fail(f"{value!r} is not a list of numbers, at least 0, with commas between them", param, ctx)
        return numbers


class _LossScale(click.ParamType[Any]):
    """A number, or ``dynamic``."""

    name = "scale"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        return "dynamic" if value == "dynamic" else _POSITIVE.convert(value, param, ctx)


_NUMBERS = _Numbers()
_LOSS_SCALE = _LossScale()


class _Assignment(click.ParamType[tuple[str, str]]):
    """NAME=VALUE. The last "=" divides: a tensor's name may hold one, a size or a tiling does not."""

    def __init__(self, name: str, *, size: bool = False) -> None:
        self.name = name
        self._size = size

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, assigned = str(value).rpartition("=")
        name, assigned = name.strip(), assigned.strip()
        if not (equals and name and assigned):
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        if self._size and not re.fullmatch("[1-9][0-9]{0,17}", assigned):
            self.fail(f"{value!r}: the size must be a whole number from 1", param, ctx)
        return name, assigned


def _by_name(pairs: Sequence[tuple[str, str]], option: str) -> dict[str, str]:
    """The pairs as a mapping; a name given twice with two values is an error."""
    named: dict[str, str] = {}
    for name, value in pairs:
        if named.setdefault(name, value) != value:
            raise UsageError(f"{option}: {name!r} is given as {named[name]} and as {value}")
    return named


def _sizes(pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    return {name: int(value) for name, value in _by_name(pairs, "--dim").items()}


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata

    try:
        version = metadata.version("tofu")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    click.echo(f"tofu {version}")
    ctx.exit()


_STRATEGIES = [
    *("tofu", "tofu-recursion", "soybean", "data", "model", "mixed", "hybrid", "fsdp"),
    *("allrow-greedy", "spartan", "equalchop", "icml18"),
]
"""Those of planner.search.methods, which is not imported for its names alone."""
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_JSON = click.option(
    "--json", "json_wanted", is_flag=True, help="Print the result as JSON, and nothing else, on stdout."
)
_DIM = click.option(
    "--dim",
    "dims",
    type=_Assignment("NAME=SIZE", size=True),
    multiple=True,
    help="Bind a symbolic dim of the model; repeatable.",
)
_MODEL = click.argument("model", type=click.Path(path_type=Path))


@click.group(context_settings=_SETTINGS)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit."
)
def tofu() -> None:
    """Plan how to split every tensor and operator of a training step over several GPUs, and run the plan.

    \b
    From a forward model to a verified run:
      tofu grad model.onnx --loss softmax_cross_entropy --optimizer sgd -o train.onnx
      tofu plan train.onnx --gpus 4 --out plan
      tofu explain plan
      tofu run plan --steps 3 --verify

    \b
    Exit codes: 0 done; 1 it ran and the answer is no; 2 bad usage, configuration or model; 3 a worker failed;
    4 a bug in tofu; 130 interrupted; 141 broken pipe.
    """


@tofu.command(short_help="Build the training graph of a forward model.")
@_MODEL
@click.option("--loss", metavar="NAME", help="What the training lowers: softmax_cross_entropy, nll, mse, l1, "
              "bce_with_logits, or output:NAME for an output that is one; none for a model of gradients.")  # fmt: skip
@click.option("--loss-input", metavar="NAME", help="The output that the loss looks at, where there are several.")
@click.option("--class-weights", metavar="W,W,...", type=_NUMBERS, help="One for each class, of losses by labels.")
@click.option("--ignore-index", type=int, metavar="LABEL", help="The label that counts for nothing.")
@click.option("--optimizer", type=click.Choice(_OPTIMIZERS), help="How the weights follow.")
@click.option("--lr", type=_POSITIVE, default=0.01, show_default=True, help="Learning rate.")
@click.option("--momentum", type=_SHARE, help="Of momentum and nesterov.  [default: 0.9]")
@click.option("--betas", type=_SHARE, nargs=2, metavar="A B", help="Of adam and adamw.  [default: 0.9 0.999]")
@click.option("--epsilon", type=_POSITIVE, help="Of adagrad, adam and adamw.  [default: 1e-10, 1e-8, 1e-8]")
@click.option("--decay-factor", type=_POSITIVE, help="Of adagrad: update T has the rate lr / (1 + T factor).")
@click.option(
    "--weight-decay", type=_POSITIVE, metavar="X", help="Weights are drawn to 0; in adamw beside the gradient."
)
@click.option(
    "--no-decay", multiple=True, metavar="PATTERN", help="Parameters that are not decayed (*, ?); repeatable."
)
@click.option("--no-decay-vectors", is_flag=True, help="Biases and scales of normalisations are not decayed.")
@click.option("--clip-norm", type=_POSITIVE, metavar="X", help="Clip gradients to this norm, taken over all of them.")
@click.option("--accumulate", type=click.IntRange(min=1), metavar="N", help="Micro-batches to a step.")
@click.option("--precision", type=click.Choice(["float32", "float16", "bfloat16"]),
              help="What the model computes in; parameters stay float32.")  # fmt: skip
@click.option("--loss-scale", metavar="X|dynamic", type=_LOSS_SCALE, help="For gradients too small for float16.")
@click.option("--gradients", type=click.Path(path_type=Path), metavar="PAIRS.yaml",
              help="Of a model of gradients: which is whose, if names, shapes and order do not tell.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["onnx", "training-info"]),
              help="The step in standard operators, or ONNX's TrainingInfoProto.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size, where it is to be another.")
@click.option(
    "--batchnorm",
    type=click.Choice(["train", "frozen"]),
    default="train",
    show_default=True,
    help="BatchNormalization by the statistics of the batch, or by those that the model holds.",
)
@_DIM
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write the training graph.  [default: MODEL.train.onnx in the working directory]",
)
@_JSON
def grad(
    model: Path,
    loss: str | None,
    optimizer: str | None,
    lr: float,
    momentum: float | None,
    batch: int | None,
    batchnorm: Literal["train", "frozen"],
    dims: tuple[tuple[str, str], ...],
    output: Path | None,
    json_wanted: bool,
    **others: Any,
) -> int:
    """Build the training graph of MODEL: loss, gradients and the optimizer's step in standard operators.

    MODEL is a forward model; or a graph of gradients, a model with training information, or a folder of
    onnxruntime-training's artifacts, which need no --loss.

    \b
    Examples:
      tofu grad resnet50.onnx --loss softmax_cross_entropy --optimizer momentum --lr 0.05 --batch 8
      tofu grad mlp.onnx --loss mse --optimizer sgd --dim batch=64 -o mlp.train.onnx
      tofu grad bert.onnx --loss softmax_cross_entropy --optimizer adamw --weight-decay 0.01 --no-decay-vectors
      tofu grad net.onnx --loss nll --optimizer adam --precision float16 --loss-scale dynamic --clip-norm 1
      tofu grad gradients.onnx --optimizer sgd --gradients pairs.yaml
      tofu grad artifacts/ -o train.onnx
      tofu grad net.onnx --loss mse --optimizer adam --format training-info -o net.training.onnx
    """
    if momentum is not None and optimizer not in ("momentum", "nesterov"):
        raise UsageError(f"--momentum: the optimizer {optimizer!r} has none", hint="write --optimizer momentum")
    stated = {name: value for name, value in others.items() if value not in (None, (), False)}
    if momentum is not None:
        stated["momentum"] = momentum
    from planner import api
    from planner.report import as_json, tables

    _show(
        lambda: api.grad(
            model,
            loss=loss,
            optimizer=optimizer,
            lr=lr,
            batch=batch,
            batchnorm=batchnorm,
            dim=_sizes(dims),
            output=output or Path(f"{model.stem}.train.onnx"),
            progress=_progress(),
            **stated,
        ),
        as_json.grad,
        tables.grad,
        json_wanted,
    )
    return EXIT_DONE


@tofu.command(short_help="Decide how everything is split, for K GPUs.")
@_MODEL
@click.option("--gpus", type=click.IntRange(min=1), metavar="K", help="How many GPUs, each a worker of the plan.")
@click.option("--topology", metavar="FILE|NAME", help="A topology file, or one that ships with tofu by its name.")
@_DIM
@click.option(
    "--strategy",
    type=click.Choice(_STRATEGIES),
    default="tofu",
    show_default=True,
    help="The found plan, or one of the literature to compare it with; see `tofu compare`.",
)
@click.option(
    "--pin",
    "pins",
    type=_Assignment("TENSOR=TILING"),
    multiple=True,
    help="Hold a tensor to a tiling, such as W=S(0) or 'W=S(0)/2 R/2'; repeatable.",
)
@click.option(
    "--inputs",
    type=click.Choice(["free", "partitioned"]),
    default="free",
    show_default=True,
    help="Inputs arrive as the plan wants them, or as disjoint parts, what is beyond which is charged.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to write the plan.  [default: MODEL.tofuK in the working directory]",
)
@click.option("--state", type=click.Path(path_type=Path), metavar="PAIRS.yaml",
              help="Which output replaces which input; by default as the model says, or inferred.")  # fmt: skip
@click.option(
    "--sharding-annotations",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the model with the tilings as ONNX sharding annotations.",
)
@_JSON
def plan(
    model: Path,
    gpus: int | None,
    topology: str | None,
    dims: tuple[tuple[str, str], ...],
    strategy: str,
    pins: tuple[tuple[str, str], ...],
    inputs: str,
    out: Path | None,
    state: Path | None,
    sharding_annotations: Path | None,
    json_wanted: bool,
) -> int:
    """Decide how each tensor and operator of MODEL is split, and write one ONNX model per worker.

    \b
    Examples:
      tofu plan train.onnx --gpus 8
      tofu plan train.onnx --topology p2.8xlarge --out plan
      tofu plan train.onnx --gpus 4 --strategy data --json
      tofu plan train.onnx --gpus 4 --pin fc.weight='S(0)'
    """
    if gpus is None and topology is None:
        raise UsageError("plan: for how many GPUs?", hint="write --gpus K, or --topology with a file or a name")
    stated: dict[str, Any] = {} if state is None else {"state": state}
    from planner import api
    from planner.report import as_json, tables

    _show(
        lambda: api.plan(
            model,
            gpus=gpus,
            topology=topology,
            dim=_sizes(dims),
            strategy=strategy,
            pin=_by_name(pins, "--pin"),
            inputs=inputs,
            out=out,
            sharding_annotations=sharding_annotations,
            progress=_progress(),
            **stated,
        ),
        as_json.plan,
        tables.plan,
        json_wanted,
    )
    return EXIT_DONE


@tofu.command(short_help="Every strategy of the literature beside the found plan.")
@_MODEL
@click.option("--gpus", type=click.IntRange(min=1), metavar="K", required=True, help="How many GPUs.")
@_DIM
@_JSON
def compare(model: Path, gpus: int, dims: tuple[tuple[str, str], ...], json_wanted: bool) -> int:
    """Plan MODEL by every strategy of the literature, and print what each of them moves and holds.

    \b
    Examples:
      tofu compare train.onnx --gpus 8
      tofu compare train.onnx --gpus 4 --json
    """
    from planner import api
    from planner.report import as_json, tables

    _show(
        lambda: api.compare(model, gpus=gpus, dim=_sizes(dims), progress=_progress()),
        as_json.compare,
        tables.compare,
        json_wanted,
    )
    return EXIT_DONE


@tofu.command("ops", short_help="Operators: coverage, descriptions, strategies, verification.")
@click.argument("op_type", metavar="[OP]", required=False)
@click.option("--verify", is_flag=True, help="Run every strategy split and whole; exits with 1 if one is wrong.")
@click.option("--opdefs", "file", type=click.Path(path_type=Path), metavar="FILE.py", help="Descriptions of your own.")
@_JSON
def ops(op_type: str | None, verify: bool, file: Path | None, json_wanted: bool) -> int:
    """Show which operators tofu can split, and how.

    \b
    Examples:
      tofu ops                           coverage of ONNX's default domain
      tofu ops Conv                      one operator: mathematics, strategies, halos
      tofu ops --verify Conv             run its strategies split and whole
      tofu ops --verify --opdefs mine.py
    """
    from planner.operators import Operators
    from planner.report import operators as report

    if verify:
        result = _show(
            lambda: Operators(file).verify(op_type, _progress()),
            report.verification_json,
            report.print_verification,
            json_wanted,
        )
        return EXIT_DONE if result.is_right else EXIT_NO
    if op_type is not None:
        _show(
            lambda: Operators(file).page(op_type),
            lambda found: report.page_json(*found),
            lambda found, out: report.print_page(*found, out),
            json_wanted,
        )
        return EXIT_DONE
    _show(lambda: Operators(file).coverage(), report.coverage_json, report.print_coverage, json_wanted)
    return EXIT_DONE


@tofu.command(short_help="Show a plan: tilings, strategies, bytes.")
@click.argument("directory", metavar="[DIR]", type=click.Path(), required=False)
@click.argument("subject", metavar="[TENSOR|OP]", required=False)
@_JSON
def explain(directory: str | None, subject: str | None, json_wanted: bool) -> int:
    """Show the tiling of every tensor of a plan and the strategy of every op, or of one of them.

    Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu explain plan
      tofu explain plan fc.weight
    """
    if directory is not None and subject is None and not _is_a_path(directory):
        directory, subject = None, directory
    folder = None if directory is None else Path(directory)
    from planner import api
    from planner.report import as_json, tables

    _show(lambda: api.explain(folder, subject=subject), as_json.explain, tables.explain, json_wanted)
    return EXIT_DONE


def _is_a_path(text: str) -> bool:
    """Whether the only argument of ``explain`` is DIR, or is meant as one that does not exist.

    A tensor's name may hold slashes, so that only ./ and ../ (which a Path forgets), a slash at the front or an
    existing parent speak for a path.
    """
    path = Path(text)
    if text.startswith(("./", "../")) or path.is_absolute() or path.exists():
        return True
    return len(path.parts) > 1 and path.parent.is_dir()


@tofu.command(short_help="Run a plan, and verify it.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz|DIR",
    help="Arrays for the inputs by name, or a folder of batches, one per step; what is lacking is drawn from the seed.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="State to start from, by name: npz or safetensors; each worker takes its own tiles.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Training steps; with --resume, those of the checkpoint included.",
)
@click.option(
    "--lr",
    metavar="RATE|SCHEDULE",
    help="Learning rate: 0.05, step:BASE,FACTOR,EVERY or cosine:BASE,END,STEPS[,WARMUP].",
)
@click.option("--verify", is_flag=True, help="Judge every step against the unpartitioned model.")
@click.option(
    "--result", type=click.Path(path_type=Path), metavar="FILE.npz", help="Where to write outputs and next state."
)
@click.option("--checkpoint-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where checkpoints go.")
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="A checkpoint after every N steps, and after the last.  [default: after the last]",
)
@click.option(
    "--resume", is_flag=True, help="Go on from the newest checkpoint, which may be of another plan of the same model."
)
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write whole weights: .safetensors, or .onnx with --forward.",
)
@click.option(
    "--forward", type=click.Path(path_type=Path), metavar="MODEL", help="The forward model that --export fills."
)
@click.option("--profile", is_flag=True, help="Measure every step: compute, fetch, wait; bytes predicted and moved.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where to compute."
)
@click.option(
    "--map",
    "device_map",
    metavar="N,N,...",
    help="With --device cuda, the GPU of each worker; several may share one.  [default: in turn]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn.")
@_JSON
def run(
    directory: Path | None,
    inputs: Path | None,
    weights: Path | None,
    steps: int,
    lr: str | None,
    verify: bool,
    result: Path | None,
    checkpoint_dir: Path | None,
    checkpoint_every: int | None,
    resume: bool,
    export: Path | None,
    forward: Path | None,
    profile: bool,
    device: str,
    device_map: str | None,
    seed: int,
    json_wanted: bool,
) -> int:
    """Run the plan in DIR, one worker per GPU of the plan; exits with 1 if a verification differs.

    Without DIR, the newest plan in the working directory.

    \b
    Examples:
      tofu run plan --steps 3 --verify
      tofu run plan --inputs batch.npz --result out.npz
      tofu run plan --inputs batches/ --steps 1000 --lr cosine:0.1,0.001,1000 --checkpoint-dir ck --checkpoint-every 100
      tofu run plan --inputs batches/ --steps 1000 --checkpoint-dir ck --resume --export weights.safetensors
    """
    from planner import api
    from planner.report import as_json, tables

    outcome = _show(
        lambda: api.run(
            directory,
            inputs=inputs,
            weights=weights,
            steps=steps,
            lr=lr,
            verify=verify,
            result=result,
            checkpoint_dir=checkpoint_dir,
            checkpoint_every=checkpoint_every,
            resume=resume,
            export=export,
            forward=forward,
            profile=profile,
            device=device,
            device_map=None if device_map is None else _device_map(device_map),
            seed=seed,
            progress=_progress(),
        ),
        as_json.run,
        tables.run,
        json_wanted,
    )
    return EXIT_NO if outcome.verified is False else EXIT_DONE


def _device_map(text: str) -> tuple[int, ...]:
    if not re.fullmatch("[0-9]+(,[0-9]+)*", text):
        raise UsageError(f"--map {text!r} is no list of GPUs", hint="write --map 0,0,1,1 for four workers on two GPUs")
    return tuple(int(part) for part in text.split(","))


@tofu.command(short_help="Write a model of the papers as a training graph.")
@click.argument("name", required=False)
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size.  [default: the paper's]")
@click.option("--optimizer", metavar="NAME", help="How the weights follow.  [default: the paper's]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write the training graph.  [default: NAME.onnx in the working directory]",
)
@_JSON
def zoo(name: str | None, batch: int | None, optimizer: str | None, output: Path | None, json_wanted: bool) -> int:
    """Write the model NAME of the papers as an ONNX training graph without weights; without NAME, list the models.

    \b
    Examples:
      tofu zoo
      tofu zoo wresnet-152-10 -o train.onnx
      tofu zoo gpt-24x2048 --batch 16
    """
    from planner import api
    from planner.report import as_json, tables

    if name is None:
        if output is not None or batch is not None or optimizer is not None:
            raise UsageError("zoo: which model?", hint="write its name; `tofu zoo` alone lists them")
        _show(api.zoo_models, as_json.zoo_models, tables.zoo_models, json_wanted)
        return EXIT_DONE
    _show(
        lambda: api.zoo(
            name, batch=batch, optimizer=optimizer, output=output or Path(f"{name}.onnx"), progress=_progress()
        ),
        as_json.zoo,
        tables.zoo,
        json_wanted,
    )
    return EXIT_DONE


def _show(
    work: Callable[[], Result],
    as_json: Callable[[Result], Mapping[str, object]],
    as_table: Callable[[Result, TextIO], None],
    json_wanted: bool,
) -> Result:
    """Do the work, whose own words go to stderr, and print its result on stdout in the form that is wanted."""
    with contextlib.redirect_stdout(sys.stderr):
        result = work()
    if json_wanted:
        _print_json(as_json(result))
    else:
        as_table(result, sys.stdout)
    return result


def _progress() -> Callable[[str], None]:
    """Tells what goes on, on stderr; tells nobody where stderr is no terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        return _say
    return lambda _line: None


def _print_json(content: Mapping[str, object]) -> None:
    # Made whole before any of it is printed: stdout holds valid JSON or nothing.
    text = json.dumps(content, indent=2, allow_nan=False)
    print(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; those of the process by default.

    Returns:
        The exit code; see ``tofu --help``.
    """
    try:
        return _guarded(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        _say("interrupted")
        return EXIT_INTERRUPTED


def _guarded(given: list[str]) -> int:
    """The exit code of a command line, whatever but an interrupt comes of it."""
    if "_TOFU_COMPLETE" in os.environ:
        tofu.main(given, prog_name="tofu")  # the shell asks for completions; does not return
    try:
        exit_code = _run(given)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return _os_error(error, given)
    except Exception as error:  # noqa: BLE001  the last door: what comes here is a bug, and is saved
        return _bug(error, given)
    return exit_code


def _run(given: list[str]) -> int:
    try:
        with tofu.make_context("tofu", given) as ctx:
            exit_code = tofu.invoke(ctx)
            return exit_code if isinstance(exit_code, int) else EXIT_DONE
    except TofuError as error:
        _print_error(error)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message())
        return EXIT_USAGE
    except click.ClickException as error:
        _print_error(_usage_error(error))
        return EXIT_USAGE
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None


def _usage_error(error: click.ClickException) -> UsageError:
    """Click's finding in the form of our own, with a near name where click has none."""
    what = error.format_message().rstrip(".")
    if isinstance(error, click.exceptions.NoSuchOption | click.exceptions.NoSuchCommand):
        what, _, _ = what.partition(" Did you mean")
        what, _, _ = what.partition(" (Did you mean")
        what = what.rstrip(".")
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None:
        return UsageError(what)
    hint = _near(error, ctx) or f"see {ctx.command_path} --help"
    return UsageError(what[0].lower() + what[1:], hint=hint)


def _near(error: click.ClickException, ctx: click.Context) -> str:
    """``did you mean 'x'?`` for an unknown command, option or choice, or ""."""
    if isinstance(error, click.exceptions.NoSuchCommand) and isinstance(ctx.command, click.Group):
        wanted, known = error.command_name, ctx.command.list_commands(ctx)
    elif isinstance(error, click.exceptions.NoSuchOption):
        wanted = error.option_name
        known = [name for parameter in ctx.command.get_params(ctx) for name in parameter.opts]
    elif isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        wanted = error.format_message().partition(": '")[2].partition("'")[0]
        known = list(error.param.type.choices)
    else:
        return ""
    return did_you_mean(wanted, known)


def _print_error(error: TofuError) -> None:
    lines = [f"error: {error.what}", *(f"  {fact}" for fact in error.facts)]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    _say("\n".join(lines))


def _os_error(error: OSError, given: list[str]) -> int:
    """A broken pipe of ours, a file or disk of the user's, or a bug."""
    if isinstance(error, BrokenPipeError) and any(_has_no_reader(stream) for stream in (sys.stdout, sys.stderr)):
        _drop_output()
        return EXIT_BROKEN_PIPE
    if error.filename is not None:
        _print_error(UsageError(f"{error.filename}: {error.strerror or error}"))
        return EXIT_USAGE
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        _drop_output()
        _print_error(UsageError(f"cannot write: {error.strerror}"))
        return EXIT_USAGE
    return _bug(error, given)


def _has_no_reader(stream: TextIO | None) -> bool:
    """Whether the stream is a pipe that nobody reads: a worker's broken pipe must not pass for ours."""
    try:
        if stream is None:
            return False
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (OSError, ValueError):
        return False


def _drop_output() -> None:
    """Let the interpreter's last flush of stdout go nowhere, or it would fail once more and change the exit code."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _bug(error: Exception, given: list[str]) -> int:
    """Save the traceback and say where; an interrupt that a library took for a fault of its own goes on as one."""
    if _comes_of_an_interrupt(error):
        raise KeyboardInterrupt from error
    import platform
    import tempfile
    import traceback

    facts: tuple[str, ...]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tofu-", suffix=".traceback.txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"tofu {' '.join(given)}\npython {platform.python_version()} on {platform.platform()}\n\n")
            file.writelines(traceback.format_exception(error))
        facts = (f"traceback saved in {file.name}",)
    except OSError:
        facts = tuple("".join(traceback.format_exception(error)).splitlines())
    brief = " ".join(str(error).split())[:200]
    described = f"{type(error).__name__}: {brief}" if brief else type(error).__name__
    hint = "please report it, with that traceback and the model"
    _print_error(TofuError(f"a bug in tofu: {described}", facts=facts, hint=hint))
    return EXIT_BUG


def _comes_of_an_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C is among the causes: pressed during an import, it may end as an ImportError."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if isinstance(cause, KeyboardInterrupt):
            return True
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            waiting += [cause.__cause__, cause.__context__]
    return False


def _say(text: str) -> None:
    """Print on stderr; control characters of a model's names do not reach the terminal."""
    shown = printable(text, keep="\n")
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(_encodable(shown, sys.stderr), file=sys.stderr, flush=True)


def _encodable(text: str, stream: TextIO) -> str:
    """The text with what the stream cannot encode written as an escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


if __name__ == "__main__":
    sys.exit(main())
