"""What checks found, as lines or as JSON: of `dfrs doctor` and `dfrs slurm check`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from dfrs.cli.console import out, print_json

if TYPE_CHECKING:
    from dfrs.live.doctor.findings import Finding

FAILED = 1
_STYLES = {"ok": "green", "warning": "yellow", "wrong": "red"}


def show_findings(found: "Sequence[Finding]", as_json: bool) -> None:
    """One line for each. Raises Exit with status 1 if something is wrong."""
    bad = sum(each.verdict == "wrong" for each in found)
    if as_json:
        warnings = sum(each.verdict == "warning" for each in found)
        print_json({"findings": [asdict(each) for each in found], "wrong": bad, "warnings": warnings})
    else:
        for each in found:
            _show(each)
    if bad:
        raise typer.Exit(FAILED)


def _show(each: "Finding") -> None:
    mend = f"; {each.mend}" if each.mend else ""
    out.print(f"{each.verdict:8}", style=_STYLES[each.verdict], end="", markup=False)
    out.print(f"{each.check}: {each.found}{mend}", markup=False, soft_wrap=True, highlight=False)
