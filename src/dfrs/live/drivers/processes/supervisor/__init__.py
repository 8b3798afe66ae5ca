"""The process that stands between an agent and one task, so that the task outlives the agent.

Started as `python -I -S supervisor/__main__.py <task directory> <lock>`: standard library only, and little of it, since
there is one for each task. All modules are read when it starts: when the task ends, a newer version may have taken
their place. It runs the task as its child, in the control groups that the driver made; keeps its output in files; ends
it when its time is up or a file asks for it; and writes how it ended. It is the reaper of everything the task starts:
the task has ended when the last of that has. Drivers import from here what both sides need.

Files of a task directory, by who writes them: driver: `spec`, `owner`, `stop`, `lock`, `dumping`, `image`, `restore`,
and what is in `beside` (see `children.py`); supervisor: `supervisor.pid`, `task.pid`, `out.<n>` and `err.<n>` (n is the
offset of the file's first byte in all that was ever written; two are kept), `input` and `signals` (see `inputs.py`),
`reads` (see `readers.py`), `parked`, `exit.json`. `spec`, `owner` and `restore` are `key=value` entries that end in a
zero byte, `stop` is a link whose text is the seconds of grace.

A task may be in an image instead of in memory. `image` is a link to it. Once that is there, the supervisor kills the
processes, stores what they said last, and makes the link `parked`: `<seconds it has run> <pipe of output> <pipe of
error output>`. With both links, and only then, the task is in its image whatever becomes of the supervisor: another
one that is started on the directory begins parked. On `restore` it lets CRIU restore the processes; just before these
run, `image` becomes `spent`. From then on they are the task, and all but `task.pid` is removed. A task that ends while
there is `dumping` is lost: CRIU was killed while it had changed the processes.

Nothing counts that restored processes say while the image is not spent. CRIU holds them for some milliseconds before it
has that done; if it is killed then, the kernel lets them run until the supervisor has killed them. None of their output
is stored, but what else they did, such as to files, they do once more when they are restored. No script that CRIU calls
could stop them before: the first that it calls in these milliseconds is the one that spends the image.
"""

from .children import BESIDE, WITHDRAWN, answered
from .files import numbers_in, pack, read_link, read_text, remove, replace_file, unpack, write_control
from .inputs import NAME as INPUT
from .inputs import SIGNALS
from .output import RESERVE_BYTES
from .place import Place
from .readers import ENTRY as WAITS
from .readers import NAME as READS
from .system import (
    BOOT,
    SET_PDEATHSIG,
    age_s,
    control_process,
    descendants,
    identity,
    living,
    parents,
    send,
    set_session_level,
    stat_fields,
    threads,
)
from .verdict import happened

__all__ = [
    "BESIDE",
    "BOOT",
    "INPUT",
    "READS",
    "RESERVE_BYTES",
    "SET_PDEATHSIG",
    "SIGNALS",
    "WAITS",
    "WITHDRAWN",
    "Place",
    "age_s",
    "answered",
    "control_process",
    "descendants",
    "happened",
    "identity",
    "living",
    "numbers_in",
    "pack",
    "parents",
    "read_link",
    "read_text",
    "remove",
    "replace_file",
    "send",
    "set_session_level",
    "stat_fields",
    "threads",
    "unpack",
    "write_control",
]
