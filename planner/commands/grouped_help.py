"""Help of a command with many options: the options stand under headings, by what they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

_REST = "Other options"
TRAINING_GROUPS: Final = {
    "The loss": (
        "--loss",
        "--loss-input",
        "--class-axis",
        "--class-weights",
        "--ignore-index",
        "--shift",
        "--tokens",
    ),
    "The optimizer": (
        "--optimizer",
        "--lr",
        "--momentum",
        "--betas",
        "--epsilon",
        "--decay-factor",
        "--weight-decay",
        "--no-decay",
        "--no-decay-vectors",
        "--clip-norm",
        "--accumulate",
    ),
    "What is trained": ("--train", "--freeze", "--params"),
    "How the model computes": ("--precision", "--loss-scale", "--batchnorm", "--dropout"),
}
"""By heading of a command's help, their names."""


class GroupedCommand(click.Command):
    """A command whose ``--help`` lists its options in groups.

    Args:
        groups: by heading the names of options, as on the command line (``--gpus``), in the order of the page. Options
            that no group names stand at the end, as ``--help`` itself does.
        parameters: those of :class:`click.Command`.
    """

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]], **parameters: Any) -> None:
        super().__init__(*arguments, **parameters)
        options = {name for parameter in self.params for name in parameter.opts}
        named = [name for names in groups.values() for name in names]
        assert options.issuperset(named), "a group names an option that the command does not have"
        assert len(set(named)) == len(named), "an option stands in one group"
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options of each group under its heading; called by click."""
        rows = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                rows[option.opts[0]] = record
        for heading, names in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([rows.pop(name) for name in names])
        with formatter.section(_REST):
            formatter.write_dl(list(rows.values()))
