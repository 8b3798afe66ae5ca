"""What a verb is, and where verbs are found: a file in one of the folders of `AREAS` that has `VERBS`."""

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer

AREAS = ("live", "simulate", "experiments", "heterogeneous")
"""Folders of verbs. Their files are all imported for `dfrs --help`: slow libraries are imported inside functions."""

LIVE, CLUSTER, ALLOCATE, REPLAY, LOOK, MAKE, MANY = PANELS = (
    "Run jobs on a live cluster",
    "Keep a live cluster",
    "Place services on nodes",
    "Replay traces under policies",
    "Look and check",
    "Generate workloads",
    "Run many, and repeat published results",
)
"""Parts of the help, in their order."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb, or with a Typer application a group of them."""

    run: Callable[..., Any] | typer.Typer
    panel: str
    place: int
    """Among the verbs of its panel, the smallest first."""
    name: str = ""
    """Default: the function's."""
    command: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More for `Typer.command`."""


def verbs() -> Iterator[Verb]:
    """All verbs, in the order of the help."""
    found: list[Verb] = []
    for area in AREAS:
        folder = import_module(f"dfrs.cli.{area}")
        for each in pkgutil.iter_modules(folder.__path__):
            found += getattr(import_module(f"{folder.__name__}.{each.name}"), "VERBS", ())
    yield from sorted(found, key=lambda verb: (PANELS.index(verb.panel), verb.place))


def add_verbs(app: typer.Typer) -> None:
    """Give the application all verbs."""
    for verb in verbs():
        if isinstance(verb.run, typer.Typer):
            app.add_typer(verb.run, name=verb.name, rich_help_panel=verb.panel)
        else:
            app.command(verb.name or verb.run.__name__, rich_help_panel=verb.panel, **verb.command)(verb.run)
