"""How `--help` lays out a command: its options in groups, and summaries that are not cut off.

Plain text; importing rich would cost half of the time that `--help` may take.
"""

from typing import Any

import typer.core


class PlainCommand(typer.core.TyperCommand):
    """A command whose help shows its options under the headings of their groups."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """The whole first line of the command's help, however long."""
        return (self.help or "").partition("\n")[0]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and groups of options; those of no group come last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                own = "Arguments" if parameter.param_type_name == "argument" else "Options"
                heading = getattr(parameter, "rich_help_panel", None) or own
                sections.setdefault(heading, []).append(record)
        for heading in sorted(sections, key=lambda each: each == "Options"):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])
