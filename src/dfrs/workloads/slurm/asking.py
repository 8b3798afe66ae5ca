"""What Slurm's own commands say of a site: `sacct` of its jobs, `sinfo` of its nodes. They change nothing."""

import os
import subprocess
from datetime import UTC, datetime

from dfrs.model.errors import DfrsError
from dfrs.workloads.slurm.text_output import COLUMNS

PATIENCE_S = 600.0
"""So long may a command take: a busy accounting database makes long periods wait."""
NODES = "%N|%c|%m"
"""Name, CPUs and memory of a node, for `sinfo -o`."""


def ask_accounting(since: float, until: float, partition: str | None = None) -> str:
    """What `sacct` prints of the jobs that were there between two instants (seconds since 1970), all instants in UTC.

    `partition`: one, or several with commas between them; None: all. Raises DfrsError, in Slurm's words.
    """
    period = ("--starttime", written(since), "--endtime", written(until))
    of = () if partition is None else ("--partition", partition)
    return _ask("sacct", "--allusers", "--duplicates", "--parsable2", *period, *of, f"--format={COLUMNS}")


def ask_nodes(partition: str | None = None) -> str:
    """What `sinfo -N` prints of nodes, one a line below a header. Raises DfrsError, in Slurm's words."""
    # Hidden partitions are shown where they are named.
    of = ("--all",) if partition is None else ("--partition", partition)
    return _ask("sinfo", "--Node", *of, "--format", NODES)


def written(instant: float) -> str:
    """An instant (seconds since 1970) as `sacct` reads it, in UTC."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _ask(*words: str) -> str:
    # In UTC no hour of the period is there twice. Variables of the user's do not choose what is shown.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SACCT_", "SINFO_"))}
    environment = kept | {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, env=environment, check=False
        )
    except OSError as error:
        raise DfrsError(f"Slurm: {words[0]}: {error.strerror}: run this where Slurm's commands are") from None
    except subprocess.TimeoutExpired:
        raise DfrsError(f"Slurm: {words[0]}: no answer within {PATIENCE_S:g} s") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").replace(f"{words[0]}: error: ", "").split())[:300]
        raise DfrsError(f"Slurm: {words[0]}: {said or f'exit status {done.returncode}'}")
    return done.stdout.decode(errors="replace")
