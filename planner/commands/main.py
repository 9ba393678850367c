"""The command line's outermost layer: the commands under one name, their errors printed, exit codes.

The core's commands are in ``planner/commands``, the others in ``planner/features``. The result goes to stdout, all else
to stderr. What is heavy (onnx, onnxruntime, numpy, rich) is imported when a command runs, so that ``tofu --help`` is
quick.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from planner import __version__
from planner.commands.build import build
from planner.commands.check import check
from planner.commands.exit_codes import (
    EXIT_BROKEN_PIPE,
    EXIT_BUG,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EXIT_USAGE,
)
from planner.commands.explain import explain
from planner.commands.former import former
from planner.commands.grad import grad
from planner.commands.plan import plan
from planner.commands.run import run
from planner.commands.streams import drop_output, has_no_reader, is_closed, say, take_stdin
from planner.commands.termination import TerminationError, termination_raised
from planner.errors import TofuError, UsageError, did_you_mean, out_of_memory
from planner.feature import OTHER, features

_HEADINGS = {
    "grad": "Make a training graph",
    "plan": "Plan",
    "check": "Plan",
    "explain": "Look at a plan",
    "run": "Run",
    "build": "Run",
}
"""The headings of the core's commands, in the order of the page."""
_OWN = ("-q", "--quiet", "-v", "--verbose")
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_COUNT, _SIZE = ("--gpus", "write --gpus K"), ("--dim", "sizes of the model's own dims are written --dim batch=N")
_OTHER_WORDS = {
    **dict.fromkeys(("--workers", "--devices", "--nproc", "-k", "-n", "-g"), (_COUNT,)),
    **dict.fromkeys(("--batch", "--batch-size"), (("--batch", "write --batch N"), _SIZE)),
    "--gpus": (("--steps", "a plan says for how many: write --gpus K to `tofu plan`"),),
}
"""What other programs taught people to write: by option, those that may be meant, the likeliest first, with a hint."""


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from planner.installed import versions

    click.echo("\n".join((f"tofu {__version__}", *versions())))
    ctx.exit()


class _Commands(click.Group):
    """The core's commands, and those of features, which are imported when click asks for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names; called by click."""
        return sorted({*super().list_commands(ctx), *(feature.name for feature in features())})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes options of ``tofu`` itself behind a command's name, too; called by click."""
        end = args.index("--") if "--" in args else len(args)
        own = [word for word in args[:end] if word in _OWN]
        return super().parse_args(ctx, [*own, *(word for word in args[:end] if word not in _OWN), *args[end:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands under their headings; called by click."""
        headings = _HEADINGS | {feature.name: feature.heading for feature in features()}
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        for heading in dict.fromkeys((*_HEADINGS.values(), OTHER)):
            rows = [
                (name, command.get_short_help_str(90))
                for name, command in commands.items()
                if command is not None and headings[name] == heading
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; called by click."""
        if cmd_name not in self.commands:
            for feature in features():
                if feature.name == cmd_name:
                    self.add_command(feature.command, feature.name)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print versions, also of what tofu needs, and exit.",
)
@click.option("-q", "--quiet", "how_much", flag_value="quiet", help="No progress and no notes on stderr.")
@click.option("-v", "--verbose", "how_much", flag_value="verbose", help="A line on stderr for everything that is done.")
@click.pass_context
def tofu(ctx: click.Context, how_much: str | None) -> None:
    """Plan how to split every tensor and operator of a training step over several GPUs, and run the plan.

    \b
    From a forward model to a verified run:
      tofu grad model.onnx --loss softmax_cross_entropy --optimizer sgd -o train.onnx
      tofu plan train.onnx --gpus 4 -o plan
      tofu explain plan
      tofu run plan --steps 3 --verify

    \b
    Exit codes: 0 done; 1 it ran and the answer is no; 2 bad usage, configuration or model; 3 a worker failed;
    4 a bug in tofu; 130 interrupted; 141 broken pipe, or stdout or stderr is closed; 143 terminated.
    """
    ctx.obj = how_much


for _command in (
    grad,
    plan,
    build,
    check,
    explain,
    run,
):
    tofu.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; those of the process by default.

    Returns:
        The exit code; see ``tofu --help``.
    """
    if any(is_closed(stream) for stream in (sys.stdout, sys.stderr)):
        return EXIT_BROKEN_PIPE  # before a file of ours is opened in its place
    take_stdin()
    try:
        with termination_raised():
            return _guarded(list(sys.argv[1:] if arguments is None else arguments))
    except TerminationError:
        say("terminated")
        return EXIT_TERMINATED
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED


def _guarded(arguments: list[str]) -> int:
    """The exit code of a command line, whatever but an interrupt comes of it."""
    if os.environ.get("_TOFU_COMPLETE"):
        tofu.main(arguments, prog_name="tofu")  # the shell asks for completions; does not return
    try:
        exit_code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return _os_error(error, arguments)
    except MemoryError as error:
        return _refused(out_of_memory(error))
    except Exception as error:  # noqa: BLE001  the last door: what comes here is a bug, and is saved
        return _bug(error, arguments)
    return exit_code


def _run(arguments: list[str]) -> int:
    try:
        with tofu.make_context("tofu", arguments) as ctx:
            exit_code = tofu.invoke(ctx)
            return exit_code if isinstance(exit_code, int) else EXIT_DONE
    except TofuError as error:
        return _refused(error)
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return EXIT_USAGE
    except click.ClickException as error:
        return _refused(_usage_error(error))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None


def _usage_error(error: click.ClickException) -> UsageError:
    """Click's finding in the form of our own, with a near name where click has none."""
    problem = error.format_message().rstrip(".").replace("valid integer range", "whole number")
    if isinstance(error, click.exceptions.NoSuchOption | click.exceptions.NoSuchCommand):
        problem, _, _ = problem.partition(" Did you mean")
        problem, _, _ = problem.partition(" (Did you mean")
        problem = problem.rstrip(".")
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None:
        return UsageError(problem)
    hint = _near(error, ctx) or _lacking(error, ctx) + f"see {ctx.command_path} --help"
    return UsageError(problem[0].lower() + problem[1:], hint=hint)


def _lacking(error: click.ClickException, ctx: click.Context) -> str:
    """How an option that is missing is written, and what it is for; "" if it is something else that is wrong."""
    option = error.param if isinstance(error, click.MissingParameter) else None
    if not isinstance(option, click.Option) or not option.help:
        return ""
    purpose = option.help.rstrip(".")
    return f"write {option.opts[0]} {option.make_metavar(ctx)}: {purpose[0].lower()}{purpose[1:]}; "


def _near(error: click.ClickException, ctx: click.Context) -> str:
    """``did you mean 'x'?`` for an unknown command, option or choice, or ""."""
    if isinstance(error, click.exceptions.NoSuchCommand) and isinstance(ctx.command, click.Group):
        wanted, candidates = error.command_name, ctx.command.list_commands(ctx)
    elif isinstance(error, click.exceptions.NoSuchOption):
        wanted = error.option_name
        candidates = [name for parameter in ctx.command.get_params(ctx) for name in parameter.opts]
        for option, hint in _OTHER_WORDS.get(wanted, ()):
            if option in candidates:
                return hint
        if hint := former(ctx.info_name or "", wanted, _flags(ctx, "plan"), _flags(ctx, "grad")):
            return hint
    elif isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        wanted = error.format_message().partition(": '")[2].partition("'")[0]
        candidates = list(error.param.type.choices)
    else:
        return ""
    return did_you_mean(wanted, candidates)


def _flags(ctx: click.Context, name: str) -> set[str]:
    """The options of another command."""
    command = tofu.get_command(ctx.find_root(), name)
    return set() if command is None else {flag for parameter in command.params for flag in parameter.opts}


def _refused(error: TofuError) -> int:
    """Print an error; its exit code."""
    say(f"error: {error}")
    return error.exit_code


def _os_error(error: OSError, arguments: list[str]) -> int:
    """A broken pipe of ours, a file or disk of the user's, or a bug."""
    if isinstance(error, BrokenPipeError) and any(has_no_reader(stream) for stream in (sys.stdout, sys.stderr)):
        drop_output()
        return EXIT_BROKEN_PIPE
    if error.filename is not None:
        return _refused(UsageError(f"{error.filename}: {error.strerror or error}"))
    if error.errno == errno.ENOMEM:
        return _refused(out_of_memory(error))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        drop_output()
        return _refused(UsageError(f"cannot write: {error.strerror}"))
    return _bug(error, arguments)


def _bug(error: Exception, arguments: list[str]) -> int:
    """Save the traceback and say where; an interrupt that a library took for a fault of its own goes on as one."""
    interrupt = _interrupt_behind(error)
    if interrupt is not None:
        raise interrupt from error
    import platform
    import tempfile
    import traceback

    facts: tuple[str, ...]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tofu-", suffix=".traceback.txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"tofu {' '.join(arguments)}\npython {platform.python_version()} on {platform.platform()}\n\n")
            file.writelines(traceback.format_exception(error))
        facts = (f"traceback saved in {file.name}",)
    except OSError:
        facts = tuple("".join(traceback.format_exception(error)).splitlines())
    brief = " ".join(str(error).split())[:200]
    described = f"{type(error).__name__}: {brief}" if brief else type(error).__name__
    hint = "please report it, with that traceback and the model"
    say(f"error: {TofuError(f'a bug in tofu: {described}', facts=facts, hint=hint)}")
    return EXIT_BUG


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Ctrl-C, or a termination, that is among the causes: during an import it may end as an ImportError."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if isinstance(cause, KeyboardInterrupt):
            return cause
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            waiting += [cause.__cause__, cause.__context__]
    return None
