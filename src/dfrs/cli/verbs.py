"""The verbs: what a verb is, and in which file each is found. A file is imported when one of its verbs is asked for."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from dfrs.cli.quick_imports import quick_imports

PANELS: Mapping[str, Mapping[str, str]] = {
    "Run jobs on a live cluster": {
        "run": "live.run",
        "submit": "live.submit",
        "queue": "live.queue",
        "show": "live.show",
        "explain": "live.explain",
        "logs": "live.logs",
        "wait": "live.wait",
        "attach": "live.attach",
        "exec": "live.attach",
        "update": "live.update",
        "cancel": "live.cancel",
        "hold": "live.cancel",
        "release": "live.cancel",
        "requeue": "live.cancel",
        "top": "live.top",
        "history": "live.history",
        "export": "live.export",
    },
    "Keep a live cluster": {
        "up": "live.up",
        "down": "live.down",
        "serve": "live.serve",
        "agent": "live.agent",
        "token": "live.token",
        "nodes": "live.nodes",
        "drain": "live.nodes",
        "undrain": "live.nodes",
        "reserve": "live.reservations",
        "reservations": "live.reservations",
        "doctor": "live.doctor",
        "backup": "live.backup",
        "restore": "live.backup",
        "slurm": "live.slurm_site",
    },
    "Place services on nodes": {
        "allocate": "simulate.allocate",
        "rebalance": "simulate.rebalance",
        "algorithms": "simulate.algorithms",
        "reassign": "simulate.reassign",
    },
    "Replay traces under policies": {
        "simulate": "simulate.simulate",
        "farm": "heterogeneous.farm",
        "policies": "simulate.policies",
        "bound": "simulate.bound",
        "compare": "simulate.compare",
    },
    "Look and check": {
        "plot": "simulate.plot",
        "convert": "simulate.convert",
        "validate": "simulate.validate",
    },
    "Generate workloads": {
        "generate": "simulate.generate",
        "workload": "simulate.workload",
    },
    "Run many, and repeat published results": {
        "campaign": "experiments.campaign",
        "reproduce": "experiments.reproduce",
    },
}
"""Parts of the help in their order, the verbs of each in theirs, and the file below this folder that has a verb in its
`VERBS`."""
FILES = {name: file for verbs in PANELS.values() for name, file in verbs.items()}
_PANEL_OF = {name: panel for panel, verbs in PANELS.items() for name in verbs}

_HAS_LINES = re.compile(r"^(?: |- |\x08)", re.MULTILINE)
"""A paragraph whose lines are lines: indented, of a list, or marked as such."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb, or with a Typer application a group of them."""

    run: Callable[..., Any] | typer.Typer
    name: str = ""
    """Default: the function's."""
    command: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More for `Typer.command`."""


class LazyVerbs(TyperGroup):
    """The command `dfrs`: who asks for one verb does not wait for the files and options of the others."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """All names, in the order of the help."""
        return list(FILES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """The verb of this name. If there is none, all are loaded, as Typer suggests the nearest of what is there."""
        for file in (FILES[cmd_name],) if cmd_name in FILES else dict.fromkeys(FILES.values()):
            if cmd_name not in self.commands:
                self._load(file)
        return super().get_command(ctx, cmd_name)

    def _load(self, file: str) -> None:
        with quick_imports():
            found: tuple[Verb, ...] = import_module(f"dfrs.cli.{file}").VERBS
        app = typer.Typer(rich_markup_mode=self.rich_markup_mode)
        for verb in found:
            if isinstance(verb.run, typer.Typer):
                app.add_typer(verb.run, name=verb.name, rich_help_panel=_PANEL_OF[verb.name])
            else:
                name = verb.name or verb.run.__name__
                app.command(name, rich_help_panel=_PANEL_OF[name], **verb.command)(verb.run)
        loaded = get_group(app).commands
        _flow(loaded.values())
        self.commands.update(loaded)


def _flow(commands: Iterable[Any]) -> None:
    """Let the paragraphs of their help, and of theirs, be as wide as the terminal; examples and lists stay."""
    for command in commands:
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        command.help = "\n\n".join(each if _HAS_LINES.search(each) else each.replace("\n", " ") for each in paragraphs)
        _flow(getattr(command, "commands", {}).values())
