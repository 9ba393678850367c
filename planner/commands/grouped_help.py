"""Help of a command with many options: the options stand under headings, by what they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

_REST = "Other options"
_ALL = "tofu.help_all"


class GroupedCommand(click.Command):
    """A command whose ``--help`` lists its usual options in groups, and whose ``--help-all`` lists all.

    Args:
        groups: by heading the names of the usual options, as on the command line (``--gpus``), in the order of the
            page.
        parameters: those of :class:`click.Command`.
    """

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]], **parameters: Any) -> None:
        super().__init__(*arguments, **parameters)
        options = {name for parameter in self.params for name in parameter.opts}
        named = [name for names in groups.values() for name in names]
        assert options.issuperset(named), "a group names an option that the command does not have"
        assert len(set(named)) == len(named), "an option stands in one group"
        self.groups = groups

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options, with ``--help-all`` where there are more than the usual ones; called by click."""
        params = super().get_params(ctx)
        grouped = {name for names in self.groups.values() for name in names}
        if grouped.issuperset(option.opts[0] for option in self.params if isinstance(option, click.Option)):
            return params
        help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options.",
        )
        return [*params, help_all]

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
        usual = ("-h", "--help-all")
        wanted = [row for name, row in rows.items() if ctx.meta.get(_ALL) or name in usual]
        with formatter.section(_REST):
            formatter.write_dl(wanted)


def _show_all(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
