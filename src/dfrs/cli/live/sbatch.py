"""Lines `#SBATCH --ntasks=4` of a script: what they ask of Slurm, as options of `dfrs submit`.

What would run otherwise than under Slurm is refused; what says nothing here is named in a note.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError

MARK = "#SBATCH"
SHORT = {
    "J": "job-name",
    "n": "ntasks",
    "N": "nodes",
    "c": "cpus-per-task",
    "t": "time",
    "a": "array",
    "d": "dependency",
    "D": "chdir",
    "b": "begin",
    "H": "hold",
    "o": "output",
    "e": "error",
    "A": "account",
    "p": "partition",
    "q": "qos",
    "G": "gpus",
    "C": "constraint",
    "w": "nodelist",
    "x": "exclude",
    "L": "licenses",
    "M": "clusters",
    "i": "input",
    "k": "no-kill",
    "O": "overcommit",
    "Q": "quiet",
    "s": "oversubscribe",
    "W": "wait",
}
"""Long names of options with one letter."""
FLAGS = {
    "hold",
    "requeue",
    "no-requeue",
    "exclusive",
    "contiguous",
    "no-kill",
    "overcommit",
    "oversubscribe",
    "parsable",
    "quiet",
    "reboot",
    "spread-job",
    "use-min-nodes",
    "verbose",
    "wait",
    "kill-on-invalid-dep",
    "ignore-pbs",
}
"""Options that need no value."""
VARIABLES = {
    "SLURM_JOB_ID": "DFRS_JOB_ID",
    "SLURM_JOBID": "DFRS_JOB_ID",
    "SLURM_ARRAY_TASK_ID": "DFRS_ARRAY_INDEX",
    "SLURM_PROCID": "DFRS_RANK",
    "SLURM_NTASKS": "DFRS_TASKS",
    "SLURM_NPROCS": "DFRS_TASKS",
    "SLURMD_NODENAME": "DFRS_NODE",
}
"""Of a job's environment, and what they are here."""
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<hours>\d+)(?::(?P<minutes>\d+)(?::(?P<seconds>\d+))?)?"
    r"|(?:(?P<h>\d+):(?=\d+:))?(?P<m>\d+)(?::(?P<s>\d+))?)",
    re.ASCII,
)
_SPANS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_BEGIN = re.compile(r"now(?:\+(\d+)(second|minute|hour|day|week)?s?)?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_VARIABLE = re.compile(r"\bSLURMD?_[A-Z0-9_]+", re.ASCII)
_ARRAY = re.compile(r"0(?:-(\d+))?(?:%(\d+))?", re.ASCII)
_GRES = re.compile(r"([a-z][a-z0-9-]{0,30})(?::(\d+))?", re.ASCII)
_SIGNAL = re.compile(r"(?:R?B?:)?(\w+)(?:@(\d+))?", re.ASCII)


@dataclass(slots=True)
class Translation:
    """Options of `dfrs submit`, each with the number of its line, and what is to be said to the user."""

    options: list[tuple[int, tuple[str, ...]]] = field(default_factory=list[tuple[int, tuple[str, ...]]])
    notes: list[str] = field(default_factory=list[str])


def translate(path: str, lines: Sequence[tuple[int, Sequence[str]]], text: str) -> Translation:
    """What lines of a script mean here, given by number and words. `text`: what follows them. Raises InputError."""
    given: dict[str, tuple[int, str]] = {}
    for number, words in lines:
        try:
            # As in Slurm the last one counts.
            given |= {name: (number, value) for name, value in _options(words)}
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None
    values = {name: value for name, (_, value) in given.items()}
    made, unread = Translation(), list[str]()
    for name, (number, value) in given.items():
        try:
            meant = _ONE[name](value) if name in _ONE else _SEVERAL[name](values) if name in _SEVERAL else None
        except InputError as error:
            raise InputError(f"{path}:{number}: #SBATCH --{name}: {error}") from None
        if meant is None:
            unread.append(f"--{name} (line {number})")
        elif meant:
            made.options.append((number, meant))
    if unread:
        made.notes.append(f"says nothing to dfrs: {', '.join(unread)}")
    made.notes += _advice(values, text)
    return made


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    k = 0
    while k < len(words):
        word = words[k]
        k += 1
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1:
            name, value = SHORT.get(word[1], word[1]), word[2:]
            equals = value
        else:
            raise InputError(f"#SBATCH {quoted(word)}: must be an option")
        if not equals and name not in FLAGS and k < len(words) and not words[k].startswith("-"):
            value = words[k]
            k += 1
        yield name, value


def _advice(given: Mapping[str, str], text: str) -> Iterator[str]:
    """What the user of Slurm may expect, and is otherwise here."""
    if {"ntasks", "nodes", "ntasks-per-node"} & given.keys() and (tasks := _all_tasks(given)) > 1:
        yield f"each of {tasks} tasks runs the whole script"
        if "mem" in given and "mem-per-cpu" not in given and (there := _tasks_on_a_node(given)) > 1:
            yield f"--mem is that of a node in Slurm: each task gets 1/{there} of it"
    if re.search(r"^\s*(?:srun|sbatch|scontrol)\b", text, re.MULTILINE):
        yield "calls a command of Slurm, which is not there: leave out srun before a program"
    if used := dict.fromkeys(_VARIABLE.findall(text)):
        words = [f"{name} (there is {VARIABLES[name]})" if name in VARIABLES else name for name in used]
        yield f"not set here: {', '.join(words)}"


def _time(value: str) -> tuple[str, ...]:
    """Slurm's limit is the estimate of its schedulers, too."""
    if value.upper() in {"0", "UNLIMITED", "INFINITE"}:
        return ()
    found = _TIME.fullmatch(value)
    if found is None:
        raise InputError(f"{quoted(value)}: must be minutes, M:SS, H:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS")
    part = {name: int(number or 0) for name, number in found.groupdict().items()}
    seconds = part["days"] * 86400 + (part["hours"] + part["h"]) * 3600
    seconds += (part["minutes"] + part["m"]) * 60 + part["seconds"] + part["s"]
    if not seconds:
        raise InputError(f"{quoted(value)}: must be above 0")
    return ("--limit", f"{seconds}s", "--time", f"{seconds}s")


def _array(value: str) -> tuple[str, ...]:
    found = _ARRAY.fullmatch(value)
    if found is None:
        raise InputError(f"{quoted(value)}: must be 0-LAST: the indexes of an array begin with 0 here and have no gaps")
    limit = f"%{found[2]}" if found[2] else ""
    return ("--array", f"{int(found[1] or 0) + 1}{limit}")


def _begin(value: str) -> tuple[str, ...]:
    if found := _BEGIN.fullmatch(value):
        return ("--at", f"+{int(found[1]) * _SPANS[found[2] or 'second']}s") if found[1] else ()
    now = datetime.now()
    if found := _CLOCK.fullmatch(value):
        try:
            then = now.replace(hour=int(found[1]), minute=int(found[2]), second=int(found[3] or 0), microsecond=0)
        except ValueError:
            raise InputError(f"{quoted(value)}: must be a time of the day") from None
        then += timedelta(days=1) if then <= now else timedelta()
        return ("--at", then.isoformat(sep=" "))
    try:
        return ("--at", datetime.fromisoformat(value).isoformat(sep=" "))
    except ValueError:
        rule = "must be now+COUNTUNIT, HH:MM or YYYY-MM-DDTHH:MM:SS"
        raise InputError(f"{quoted(value)}: {rule}") from None


def _signal(value: str) -> tuple[str, ...]:
    found = _SIGNAL.fullmatch(value)
    if found is None:
        raise InputError(f"{quoted(value)}: must be a signal and seconds, as USR1@60")
    return ("--signal", f"{found[1]}@{found[2]}" if found[2] else found[1])


def _mail(value: str) -> tuple[str, ...] | None:
    """Other events than these three are none here, as that time is nearly up."""
    asked = {word.upper() for word in value.split(",")}
    told = [word for word in ("begin", "end", "fail") if {word.upper(), "ALL"} & asked]
    if told:
        return ("--notify", ",".join(told))
    return () if asked == {"NONE"} else None


def _export(value: str) -> tuple[str, ...] | None:
    names = [each for each in value.split(",") if each not in {"", "NONE", "NIL"}]
    words = tuple(word for each in names if each != "ALL" for word in ("--env", each))
    return words or (None if "ALL" in names else ())


def _tasks(given: Mapping[str, str]) -> tuple[str, ...]:
    return ("--tasks", str(_all_tasks(given)))


def _nodes(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """On how many nodes they are is the decision of the policy, but for what it says of their number."""
    return None if "ntasks" in given and given["nodes"] != "1" else _tasks(given)


def _per_node(given: Mapping[str, str]) -> tuple[str, ...] | None:
    return None if "ntasks" in given else _tasks(given)


def _all_tasks(given: Mapping[str, str]) -> int:
    """As many as it says, or else so many on each node."""
    if "ntasks" in given:
        return _count(given, "ntasks")
    return _count(given, "nodes") * _count(given, "ntasks-per-node")


def _tasks_on_a_node(given: Mapping[str, str]) -> int:
    if "ntasks-per-node" in given:
        return _count(given, "ntasks-per-node")
    return -(-_all_tasks(given) // _count(given, "nodes"))


def _memory(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Slurm's is that of a node; here it is that of a task."""
    size = _bytes(given["mem"])
    return ("--memory", f"{-(-size // _tasks_on_a_node(given))}B") if size else None


def _memory_of_cpus(given: Mapping[str, str]) -> tuple[str, ...] | None:
    size = _bytes(given["mem-per-cpu"]) * _count(given, "cpus-per-task")
    return ("--memory", f"{size}B") if size else None


def _resources(given: Mapping[str, str]) -> tuple[str, ...]:
    """Slurm's are those of a node; here each task has its own."""
    words: tuple[str, ...] = ()
    for each in [each for each in given["gres"].split(",") if each not in {"", "none"}]:
        found = _GRES.fullmatch(each)
        if found is None:
            raise InputError(f"{quoted(each)}: must be NAME:COUNT, as gpu:1: nodes do not tell types of one name apart")
        words += ("--resource", f"{found[1]}={_of_each(int(found[2] or 1), _tasks_on_a_node(given))}")
    return words


def _gpus(given: Mapping[str, str]) -> tuple[str, ...]:
    return ("--gpus", str(_of_each(_count(given, "gpus"), _all_tasks(given))))


def _gpus_per_node(given: Mapping[str, str]) -> tuple[str, ...]:
    return ("--gpus", str(_of_each(_count(given, "gpus-per-node"), _tasks_on_a_node(given))))


def _of_each(count: int, tasks: int) -> int:
    if count % tasks:
        raise InputError(f"{count} for {tasks} tasks: must be a multiple of them: each task has its own here")
    return count // tasks


def _count(given: Mapping[str, str], name: str) -> int:
    value = given.get(name, "1")
    if not (value.isascii() and value.isdecimal() and int(value) > 0):
        raise InputError(f"--{name}: {quoted(value)}: must be a number")
    return int(value)


def _bytes(value: str) -> int:
    found = _MEMORY.fullmatch(value)
    if found is None:
        raise InputError(f"{quoted(value)}: must be a size, as 4G; without a unit it is in MiB")
    return int(found[1]) * _UNITS[found[2].upper()]


def _after(value: str) -> tuple[str, ...]:
    if "?" in value:
        raise InputError(f"{quoted(value)}: must have commas: a job waits for all of the others, not for one of them")
    return ("--after", value)


_ONE: Mapping[str, Callable[[str], tuple[str, ...] | None]] = {
    "job-name": lambda value: ("--name", value),
    "account": lambda value: ("--account", value),
    "cpus-per-task": lambda value: ("--cpu", value),
    "time": _time,
    "array": _array,
    "dependency": _after,
    "chdir": lambda value: ("--directory", value),
    "begin": _begin,
    "nodelist": lambda value: ("--nodelist", value),
    "exclude": lambda value: ("--exclude", value),
    "constraint": lambda value: ("--constraint", value),
    "hold": lambda _: ("--hold",),
    "no-requeue": lambda _: ("--restart", "never"),
    "requeue": lambda _: ("--restart", "on-node-loss"),
    "signal": _signal,
    "exclusive": lambda value: None if value else ("--exclusive",),
    "gpus-per-task": lambda value: ("--gpus", value),
    "export": _export,
    "output": lambda value: ("--output", value),
    "error": lambda value: ("--error", value),
    "open-mode": lambda value: ("--open-mode", value),
    "mail-type": _mail,
    "mail-user": lambda value: ("--notify-to", value),
}
"""Options by their value alone: words of `dfrs submit`; None: they say nothing here."""
_SEVERAL: Mapping[str, Callable[[Mapping[str, str]], tuple[str, ...] | None]] = {
    "ntasks": _tasks,
    "nodes": _nodes,
    "ntasks-per-node": _per_node,
    "mem": _memory,
    "mem-per-cpu": _memory_of_cpus,
    "gres": _resources,
    "gpus": _gpus,
    "gpus-per-node": _gpus_per_node,
}
"""Options that are understood together with others."""
