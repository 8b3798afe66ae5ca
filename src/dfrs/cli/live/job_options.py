"""Options that say what a job is: those of `dfrs submit` and `dfrs run`, and of scripts."""

import functools
import inspect
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import typer.main
from typer.core import TyperCommand
from typer.exceptions import TyperException

from dfrs.cli.console import warn
from dfrs.cli.live.array import parse_array
from dfrs.cli.live.completing import complete_jobs, complete_nodes
from dfrs.cli.live.dependencies import parse_after
from dfrs.cli.live.environments import in_environment, in_venv
from dfrs.cli.live.here import refuse_missing
from dfrs.cli.live.node_names import NodeNames, parse_features, parse_nodes
from dfrs.cli.live.resource_options import MOST, of_task, parse_counts
from dfrs.cli.live.script import read_script
from dfrs.cli.quantities import parse_bytes, parse_instant, parse_seconds, quoted
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import JobRequest

WARNING_S = 60.0
"""So long before the time limit a signal comes where nothing else is said."""

_OPTIONS = {
    "tasks": "--tasks",
    "cpu_cores": "--cpu",
    "memory_bytes": "--memory",
    "minimum_yield": "--min-yield",
    "weight": "--weight",
    "resources": "--resource",
    "name": "--name",
    "user": "--user",
    "account": "--account",
    "estimate_s": "--time",
    "time_limit_s": "--limit",
    "warning_signal": "--signal",
    "warning_s": "--signal",
    "after": "--after",
    "after_failed": "--after",
    "after_any": "--after",
    "after_start": "--after",
    "start_at": "--at",
    "nodelist": "--nodelist",
    "exclude": "--exclude",
    "constraint": "--constraint",
    "array": "--array",
    "array_limit": "--array",
    "environment": "--env",
    "directory": "--directory",
    "output_file": "--output",
    "error_file": "--error",
    "open_mode": "--open-mode",
    "notify": "--notify",
    "notify_to": "--notify-to",
    "command": "command",
}
_OF_JOB = {
    "tasks",
    "cpu_cores",
    "memory",
    "min_yield",
    "weight",
    "resource",
    "gpus",
    "exclusive",
    "name",
    "user",
    "account",
    "estimate",
    "limit",
    "warning",
    "after",
    "at",
    "nodelist",
    "exclude",
    "constraint",
    "array",
    "restart",
    "restartable",
    "hold",
    "profile",
    "env",
    "venv",
    "module",
    "image",
    "directory",
    "output",
    "error",
    "open_mode",
    "notify",
    "notify_to",
}
"""Parameters that a script may give. The others say where the job and the token go, and what becomes of the verb."""
_NUMBERS = {"tasks", "cpu_cores", "min_yield", "weight", "gpus"}


_FILE = "dfrs.graph"
"""What a context of a command has noted when jobs come from a file."""
PROGRAM_LAST = {"allow_interspersed_args": False}
"""Settings of a command whose options end where the program begins: the rest is the program's own."""


class ScriptCommand(TyperCommand):
    """Reads the options in a job script before those of the command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """The script is the first word that is no option; its lines are checked one by one, to name the bad one."""
        if ctx.resilient_parsing or {"-h", "--help"} & set(args[:1]):
            return super().parse_args(ctx, args)
        given, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        _check_words(given)
        words = given.get("command") or rest
        script = read_script(words[0], Path.cwd()) if words else None
        if script is None:
            return super().parse_args(ctx, args)
        options: list[str] = []
        for line in script.lines:
            self._check(ctx, f"{script.path}:{line.number}", line.words)
            options += line.words
        return super().parse_args(ctx, [*options, *args])

    def _check(self, ctx: Any, where: str, words: Sequence[str]) -> None:  # noqa: ANN401
        try:
            given, rest, _ = self.make_parser(ctx).parse_args(args=list(words))
            if others := [name for name in given if name not in {*_OF_JOB, "command"}]:
                option = next(
                    max(parameter.opts, key=len) for parameter in self.get_params(ctx) if parameter.name == others[0]
                )
                raise InputError(f"{option}: says nothing of the job: give it on the command line")
            _check_words(given)
            if given.get("command") or rest:
                raise InputError("must hold options only; the command follows in the script")
            apart = type(ctx)(self, info_name=ctx.info_name, parent=ctx.parent, **PROGRAM_LAST)
            super().parse_args(apart, [*words, "--", "true"])
        except TyperException as error:
            raise InputError(
                f"{where}: {' '.join(getattr(error, 'format_message', error.__str__)().split())}"
            ) from None
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


class SubmitCommand(ScriptCommand):
    """Takes a file of jobs in place of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """With a file, all is said there but what is the same for all of them."""
        if ctx.resilient_parsing or {"-h", "--help"} & set(args[:1]):
            return super().parse_args(ctx, args)
        given, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        if "graph" not in given:
            return super().parse_args(ctx, args)
        if given.get("command") or rest:
            raise InputError("--graph: the file has the commands: give none here")
        if others := [name for name in given if name in _OF_JOB - {"hold"}]:
            option = next(max(each.opts, key=len) for each in self.get_params(ctx) if each.name == others[0])
            raise InputError(f"{option}: is of each job: with --graph, say it in the file")
        ctx.meta[_FILE] = True
        return TyperCommand.parse_args(self, ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Without a command where there is a file."""
        return [each for each in super().get_params(ctx) if each.name != "command" or _FILE not in ctx.meta]


def _check_words(given: Mapping[str, Any]) -> None:
    """What Typer would read otherwise, or not at all. Raises InputError."""
    parse_after(given.get("after") or ())
    parse_counts(given.get("resource") or ())
    _events(given.get("notify"))
    if warning := given.get("warning"):
        parse_warning(warning)
    if array := given.get("array"):
        parse_array(array)
    # Python reads digits of all scripts, and 1_000.
    for name in _NUMBERS & given.keys():
        for text in given[name] if isinstance(given[name], list) else [given[name]]:
            if not _is_number(str(text)):
                option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
                raise InputError(f"{option}: {quoted(text)}: must be a number")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text


class _Size(int):
    """Bytes, and how they were written."""

    text: str


class _Seconds(float):
    """Seconds, and how they were written."""

    text: str


def _size(text: str) -> int:
    size = _Size(parse_bytes(text, "--memory"))
    size.text = text
    return size


def _seconds(seconds: float, text: str) -> float:
    value = _Seconds(seconds)
    value.text = text
    return value


def _estimate(text: str) -> float:
    return _seconds(parse_seconds(text, "--time"), text)


def _limit(text: str) -> float:
    return _seconds(parse_seconds(text, "--limit"), text)


def parse_warning(text: str) -> tuple[str, float]:
    """The name of a signal, and how many seconds before the limit it comes: `USR1@60`, `SIGUSR1`, `10@60`."""
    from typing import get_args

    from dfrs.live.protocol.resources import WarningSignal

    word, at, seconds = text.partition("@")
    name = word.removeprefix("SIG")
    if word.isascii() and word.isdecimal() and int(word) in signal.valid_signals():
        name = signal.Signals(int(word)).name.removeprefix("SIG") if int(word) < signal.SIGRTMIN else word
    if name not in get_args(WarningSignal):
        raise InputError(f"--signal: {quoted(text)}: must be one of {', '.join(get_args(WarningSignal))}, as USR1@60")
    if not at:
        return name, WARNING_S
    if not (seconds.isascii() and seconds.isdecimal() and 0 < int(seconds) <= 10**9):
        raise InputError(f"--signal: {quoted(text)}: must have whole seconds after @, as USR1@60")
    return name, float(seconds)


def _events(text: str | None) -> tuple[str, ...]:
    """Of what somebody is to be told, as in `begin,end`."""
    words = () if text is None else tuple(dict.fromkeys(text.split(",")))
    if not set(words) <= {"begin", "end", "fail"}:
        raise InputError(f"--notify: {quoted(text)}: must be begin, end or fail, or several of them, as end,fail")
    return words


def _instant(text: str) -> float:
    return _seconds(parse_instant(text, "--at"), text)


def _wanted(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="Program and its arguments, or a script.", show_default=False),
    ],
    tasks: Annotated[int, typer.Option("--tasks", "-n", help="Identical tasks, started together.", min=1)] = 1,
    cpu_cores: Annotated[
        float | None,
        typer.Option("--cpu", help="Cores that each task needs; default: estimated at run time.", show_default=False),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(parser=_size, metavar="SIZE", help="Memory of each task: 512M, 1.5G.", show_default=False),
    ] = None,
    min_yield: Annotated[float, typer.Option(help="Smallest yield it is to run with, 0 to 1.", min=0, max=1)] = 0.0,
    weight: Annotated[
        float, typer.Option(help="A factor of its priority: below 1 others go first.", show_default=False)
    ] = 1.0,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COUNT",
            help="So many of a named resource for each task, from its start to its end: gpu=1. Several times for "
            "several.",
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(help="Short for --resource gpu=COUNT.", min=1, max=MOST, show_default=False)
    ] = None,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="No task of another job on its nodes while it is there.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Default: the program's name.", show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="Submit for another user (admins).", show_default=False)] = None,
    account: Annotated[
        str | None,
        typer.Option(
            "--account", "-A", envvar="DFRS_ACCOUNT", help="Charge it to this project or account.", show_default=False
        ),
    ] = None,
    estimate: Annotated[
        float | None,
        typer.Option(
            "--time",
            parser=_estimate,
            metavar="TIME",
            help="Estimated processing time, for batch policies: 90s, 2h.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(parser=_limit, metavar="TIME", help="End it after so much running time.", show_default=False),
    ] = None,
    warning: Annotated[
        str | None,
        typer.Option(
            "--signal",
            metavar="NAME[@SECONDS]",
            help="Signal for its processes so many seconds (60) before --limit: USR1@120.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:KIND]",
            help="Only when this job has ended well (ok); failed; ended in any way (any); begun (start): 3:any. "
            "Several times for several.",
            autocompletion=complete_jobs,
        ),
    ] = None,
    at: Annotated[
        float | None,
        typer.Option(
            parser=_instant,
            metavar="WHEN",
            show_default=False,
            help='Start then, on reserved shares: "2026-11-23 08:00", +30m.',
        ),
    ] = None,
    nodelist: Annotated[
        NodeNames | None,
        typer.Option(
            parser=functools.partial(parse_nodes, field="--nodelist"),
            metavar="NODE,...",
            help="Run it only on these nodes.",
            show_default=False,
            autocompletion=complete_nodes,
        ),
    ] = None,
    exclude: Annotated[
        NodeNames | None,
        typer.Option(
            "--exclude",
            "-x",
            parser=functools.partial(parse_nodes, field="--exclude"),
            metavar="NODE,...",
            help="Run it on none of these nodes.",
            show_default=False,
            autocompletion=complete_nodes,
        ),
    ] = None,
    constraint: Annotated[
        str | None,
        typer.Option(
            "--constraint",
            "-C",
            parser=parse_features,
            metavar="FEATURES",
            help='Run it only on nodes with all of the features "a,b" or "a&b", or with any of "a|b".',
            show_default=False,
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT[%LIMIT]",
            help="So many jobs, with DFRS_ARRAY_INDEX from 0; at most LIMIT of them run at once: 100%5.",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[
        Literal["never", "on-node-loss", "any-time"],
        typer.Option(help="Begin it anew, once, when its node is lost; never; or any time its memory is needed."),
    ] = "on-node-loss",
    restartable: Annotated[bool, typer.Option("--restartable", help="Short for --restart any-time.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Let it wait for dfrs release.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Profile its MPI programs: dfrs farm profile-job.")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="Set a variable, or pass yours on.")
    ] = None,
    venv: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Run it in this Python virtual environment.", show_default=False),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Load this environment module of its node first: gcc/12. Several times for several.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="Run it in this container image, by the apptainer or singularity of its node.",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", "-d", help="Where it runs; default: here.", show_default=False)
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write its output to this file on the node, too: out-%j.txt, with its number.",
            show_default=False,
        ),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option("--error", metavar="FILE", help="And its error output to this one.", show_default=False),
    ] = None,
    open_mode: Annotated[
        Literal["append", "truncate"] | None,
        typer.Option(help="What becomes of what these files hold when it begins.", show_default=False),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="EVENTS", help="Have somebody told when it begins, ends, fails: begin,fail.", show_default=False
        ),
    ] = None,
    notify_to: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Whom; default: its user.", show_default=False)
    ] = None,
) -> dict[str, object]:
    """The fields of the request that these options make. Raises InputError."""
    if restartable and restart == "never":
        raise InputError("--restartable: says that it may begin anew, and --restart never that it may not: give one")
    if warning is not None and limit is None:
        raise InputError("--signal: comes before the time limit: give one by --limit")
    warned = {} if warning is None else dict(zip(("warning_signal", "warning_s"), parse_warning(warning), strict=True))
    place = Path.cwd() if directory is None else Path(os.path.abspath(directory))
    script = read_script(command[0], Path.cwd())
    for note in () if script is None else script.notes:
        warn(f"{command[0]}: {note}")
    program = command if script is None else script.command(command[1:])
    return {
        "command": in_environment(program, module or (), image),
        "name": name or Path(command[0]).name,
        "user": user,
        "account": account or None,
        "tasks": tasks,
        "cpu_cores": cpu_cores,
        "memory_bytes": memory,
        "minimum_yield": min_yield,
        "weight": weight,
        "resources": of_task(resource or (), gpus),
        "exclusive": exclusive,
        "estimate_s": estimate,
        "time_limit_s": limit,
        **warned,
        "start_at": at,
        **parse_after(after or ()),
        "nodelist": nodelist or (),
        "exclude": exclude or (),
        "constraint": constraint or "",
        **({"array": None} if array is None else parse_array(array)),
        "restart": "any-time" if restartable else restart,
        "held": hold,
        "profile": profile,
        "directory": str(place),
        "output_file": output,
        "error_file": error,
        "open_mode": open_mode,
        "notify": _events(notify),
        "notify_to": notify_to,
        "environment": in_venv(venv, environment(env or (), os.environ)),
    }


def of_job(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose second parameter, the fields of a request, is made of the options above."""
    signature = inspect.signature(verb)
    client, first, *own = signature.parameters.values()
    options = inspect.signature(_wanted).parameters

    @functools.wraps(verb)
    def called(client: "Client", **arguments: Any) -> None:  # noqa: ANN401 - as Typer gives them
        given = {name: arguments.pop(name) for name in options}
        # Without a command they are of all jobs of a file.
        fields = _wanted(**given) if given["command"] else {"held": given["hold"]}
        verb(client, fields, **arguments)

    # Typer builds the options from what it sees here.
    called.__signature__ = signature.replace(parameters=[client, *options.values(), *own])  # pyright: ignore[reportAttributeAccessIssue]
    called.__annotations__ = {name: kind for name, kind in verb.__annotations__.items() if name != first.name} | {
        name: option.annotation for name, option in options.items()
    }
    return called


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOption:
    """How an option of a job is given: alone, and maybe several times."""

    is_flag: bool
    multiple: bool


@functools.cache
def _command() -> Any:  # noqa: ANN401 - as Typer makes it
    """A command that does nothing but read the options of a job."""
    reader = typer.Typer(add_completion=False, rich_markup_mode=None)
    reader.command(cls=ScriptCommand, context_settings=PROGRAM_LAST)(_wanted)
    return typer.main.get_command(reader)


def job_options() -> Mapping[str, JobOption]:
    """All options that say what a job is, by their long names without dashes."""
    return {
        max(parameter.opts, key=len).removeprefix("--"): JobOption(
            is_flag=parameter.is_flag, multiple=parameter.multiple
        )
        for parameter in _command().params
        if parameter.name in _OF_JOB
    }


def fields_of(words: Sequence[str]) -> dict[str, object]:
    """The fields of the request that options and a command make, in words of a command line. Raises InputError."""
    try:
        return _command().main(list(words), prog_name="dfrs submit", standalone_mode=False)
    except TyperException as error:
        raise InputError(" ".join(getattr(error, "format_message", error.__str__)().split())) from None


def checked(client: "Client", fields: Mapping[str, object]) -> "JobRequest":
    """The request of these fields. Raises InputError with the option, also where its program is surely missing."""
    from dfrs.live.job_request import checked_request

    request = checked_request(fields, _OPTIONS, lambda value: quoted(getattr(value, "text", value)))
    refuse_missing(client, request)
    if request.notify and not client.cluster().notifies:
        warn("--notify: nobody is told by this cluster: its operator gives it a way by dfrs serve --notify-command")
    return request


def environment(wanted: Sequence[str], present: Mapping[str, str]) -> dict[str, str]:
    """What the job is given: a few variables of its submitter, then `wanted`: NAME=VALUE or NAME. Raises InputError."""
    from dfrs.live.job_request import own_environment

    chosen = own_environment(present)
    for text in wanted:
        name, equals, value = text.partition("=")
        if not equals and name not in present:
            raise InputError(f"--env {name}: is not set here; give a value: --env {name}=VALUE")
        chosen[name] = value if equals else present[name]
    return chosen
