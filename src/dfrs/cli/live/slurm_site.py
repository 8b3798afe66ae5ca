"""`dfrs slurm`: watch a Slurm, prepare it for dfrs, check it, and take that back."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out
from dfrs.cli.live.cluster import Json
from dfrs.cli.live.findings import show_findings
from dfrs.cli.live.share_agent import share_agent
from dfrs.cli.live.slurm_give_back import give_back
from dfrs.cli.live.slurm_shadow import shadow
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.backends.slurm.setup.requirements import Change
    from dfrs.live.backends.slurm.setup.site import Site

app = typer.Typer(
    name="slurm",
    help="Watch Slurm beside a policy; prepare a partition for dfrs serve --backend slurm, check it, take that back, "
    "hand its jobs back, and share its nodes.",
    no_args_is_help=True,
)

STANDARD = "/etc/slurm/slurm.conf"
BACKUP = ".before-dfrs"
_SCRIPTS = {
    "dfrs.lua": "holds jobs of the partition when they are submitted, and refuses a comment that cannot be read",
    "job_submit.lua": "has Slurm ask dfrs.lua",
}
_Conf = Annotated[
    Path | None,
    typer.Option("--conf", metavar="FILE", help=f"Default: SLURM_CONF, or {STANDARD}.", show_default=False),
]
_Partition = Annotated[
    str | None,
    typer.Option("--partition", help="For which dfrs decides; default: the default one.", show_default=False),
]
_Users = Annotated[
    list[str] | None,
    typer.Option(
        "--user",
        metavar="ACCOUNT",
        show_default=False,
        help="Who may start jobs there, besides root and SlurmUser: the account of dfrs serve; may be repeated.",
    ),
]


@app.command("check")
def check(conf: _Conf = None, partition: _Partition = None, user: _Users = None, as_json: Json = False) -> None:
    """Check Slurm's files, one line for each setting: ok, warning or wrong, and what to do.

    Exit status 1 if something is wrong, 0 otherwise.

    Example:

        dfrs slurm check --partition main
    """
    show_findings(_site(conf, partition, user).findings, as_json)


@app.command("install")
def install(
    conf: _Conf = None,
    partition: _Partition = None,
    user: _Users = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write the changed files there, not in place.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Change the files in place; each keeps a backup.")] = False,
) -> None:
    """Show which lines of Slurm's files have to change, and why. Without --yes or --write nothing is written.

    Then restart slurmctld, and slurmd on all nodes.

    Examples:

        dfrs slurm install --partition main

        sudo dfrs slurm install --partition main --yes
    """
    from dfrs.live.backends.slurm.setup.edits import by_file

    if write is not None and yes:
        raise InputError("--write: must not be with --yes")
    site = _site(conf, partition, user)
    site.refuse_another()
    files, left = site.files(), site.left
    for path, changes in by_file(site.changes).items():
        out.print(f"{path}:", markup=False, soft_wrap=True)
        for change in changes:
            _show(change)
    for path in files:
        if path.name in _SCRIPTS:
            out.print(f"{path}: {_SCRIPTS[path.name]}", markup=False, soft_wrap=True)
    if not files:
        out.print(f"partition {site.partition.name}: nothing has to change", markup=False)
    elif yes:
        _replace(files)
        _say_restart()
    elif write is not None:
        _write(files, write)
    else:
        out.print("Nothing is written: --yes changes these files, --write DIRECTORY makes new ones", soft_wrap=True)
    for each in left:
        out.print(f"{each.verdict}: {each.check}: {each.found}; {each.mend}", markup=False, soft_wrap=True)


@app.command("uninstall")
def uninstall(
    conf: _Conf = None,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", help="For which dfrs decided; default: as job_submit.lua says.", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Change the files in place; each keeps a backup.")] = False,
) -> None:
    """Take back what install has changed in Slurm's files, and leave all else. Without --yes nothing is written.

    Stop dfrs serve first. Then restart slurmctld and run the last command that is shown: Slurm starts what waits.

    Example:

        sudo dfrs slurm uninstall --yes
    """
    from dfrs.live.backends.slurm.setup.site import installed_for, undone

    path = _path(conf)
    files = undone(path)
    if not files:
        out.print(f"{path}: has nothing of dfrs slurm install", markup=False, soft_wrap=True)
        return
    # Before the script that says it is removed.
    name = installed_for(path, partition)
    for file, text in files.items():
        out.print(f"{file}: {'is removed' if text is None else 'is as before'}", markup=False, soft_wrap=True)
    if not yes:
        out.print("Nothing is written: --yes does it", soft_wrap=True)
        return
    _replace(files)
    _say_restart()
    out.print(f"  dfrs slurm give-back --partition {name} --yes", markup=False, soft_wrap=True)


def _path(conf: Path | None) -> Path:
    return conf or Path(os.environ.get("SLURM_CONF") or STANDARD)


def _site(conf: Path | None, partition: str | None, users: list[str] | None) -> "Site":
    from dfrs.live.backends.slurm.setup.site import Site

    return Site(_path(conf), partition, users or ())


def _show(change: "Change") -> None:
    line = change.line
    if line is not None:
        out.print(f"  - {line.changed({})}  (line {line.first})", style="red", markup=False, soft_wrap=True)
    out.print(f"  + {change.text}", style="green", markup=False, soft_wrap=True)
    out.print(f"    {change.why}", markup=False, soft_wrap=True)


def _replace(files: Mapping[Path, str | None]) -> None:
    from dfrs.model.writing import write_bytes, write_text

    for name, text in files.items():
        # A link stays one.
        path = name.resolve()
        if path.exists():
            backup = _free(path)
            write_bytes(backup, path.read_bytes())
            out.print(f"{path}: was copied to {backup.name}", markup=False, soft_wrap=True)
        if text is None:
            path.unlink()
        else:
            write_text(path, text)


def _free(path: Path) -> Path:
    """A name for a backup that no file has."""
    backup, number = path.with_name(path.name + BACKUP), 1
    while backup.exists():
        number += 1
        backup = path.with_name(f"{path.name}{BACKUP}.{number}")
    return backup


def _write(files: Mapping[Path, str], folder: Path) -> None:
    from dfrs.model.writing import write_text

    names = [path.name for path in files]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise InputError(f"--write {folder}: two files are called {', '.join(sorted(doubled))}: use --yes")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--write {folder}: cannot be made: {error.strerror}") from None
    for path, text in files.items():
        write_text(folder / path.name, text)
        out.print(f"{folder / path.name}: is for {path}", markup=False, soft_wrap=True)


def _say_restart() -> None:
    out.print("Now copy Slurm's files to all nodes as always, and have them count:", soft_wrap=True)
    out.print("  systemctl restart slurmctld   # and slurmd on all nodes", soft_wrap=True)


app.command("give-back")(give_back)
app.command("share-agent")(share_agent)
app.command("shadow")(shadow)

VERBS = (Verb(app, name="slurm"),)
