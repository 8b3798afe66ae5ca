"""`dfrs show`: all that is known of a job."""

import shlex
import time
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import JobId, Json, live
from dfrs.cli.live.resource_options import show_counts
from dfrs.cli.quantities import show_bytes, show_cores, show_instant, show_seconds
from dfrs.cli.verbs import Verb
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Job


@live
def show(client: "Client", job: JobId, as_json: Json = False) -> None:
    """Show a job: what it asked for, what it gets and uses, where it is and why.

    Example: dfrs show 17
    """
    found = client.job(job)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts(found):
        if text:
            table.add_row(name, Text(visible(text)))
    out.print(table)


def facts(job: "Job") -> list[tuple[str, str]]:
    """Rows of what is known: name and words; empty words are not shown."""
    from dfrs.cli.views.live import minimum_words, need_text, weight_words, yield_words
    from dfrs.live.protocol.resources import ENDED

    def instant(at: float | None) -> str:
        return "" if at is None else show_instant(at, time.time())

    need = f"{need_text(job)} cores a task, {'estimated' if job.cpu_cores is None else 'declared'}"
    used = "" if job.used_cores is None else f"{show_cores(job.used_cores)} cores"
    if job.used_bytes is not None:
        used = ", ".join(filter(None, [used, show_bytes(job.used_bytes)]))
    return [
        ("job", f"{job.id} {job.name}"),
        ("user", job.user),
        ("account", job.account or ""),
        ("state", job.state.value),
        ("why", job.why if job.state not in ENDED else ""),
        ("end", job.exit),
        ("command", shlex.join(job.command)),
        ("tasks", str(job.tasks)),
        ("need", need),
        ("memory", f"{show_bytes(job.memory_bytes)} a task"),
        ("yield", yield_words(job)),
        ("not as granted", job.apart),
        ("minimum yield", minimum_words(job)),
        ("weight", weight_words(job)),
        ("resources", f"{show_counts(job.resources)} a task" if job.resources else ""),
        ("exclusive", "no other job on its nodes" if job.exclusive else ""),
        ("uses now", used),
        ("nodes", ", ".join(job.nodes)),
        ("only on", ", ".join(job.nodelist)),
        ("not on", ", ".join(job.exclude)),
        ("features", job.constraint),
        ("submitted", instant(job.submitted_at)),
        ("to start at", instant(job.start_at)),
        ("started", instant(job.started_at)),
        ("ended", instant(job.ended_at)),
        ("CPU time", show_seconds(job.cpu_s)),
        ("peak memory", "" if job.peak_bytes is None else f"{show_bytes(job.peak_bytes)} in a task"),
        ("virtual time", virtual_words(job)),
        ("stretch", "" if job.stretch is None else f"{job.stretch:.2f}"),
        ("after", after_words(job)),
        ("array index", "" if job.array_index is None else str(job.array_index)),
        ("of its array run", "" if job.array_limit is None else f"at most {job.array_limit}"),
        ("estimate", "" if job.estimate_s is None else show_seconds(job.estimate_s)),
        ("time limit", "" if job.time_limit_s is None else show_seconds(job.time_limit_s)),
        ("paused, moved", f"{job.pauses}, {job.migrations}"),
        ("queued again", str(job.attempt) if job.attempt else ""),
        ("output also in", ", ".join(filter(None, [job.output_file, job.error_file]))),
        ("profiled", f"dfrs farm profile-job {job.id}" if job.profile else ""),
    ]


def virtual_words(job: "Job") -> str:
    """Virtual times, received and granted."""
    received = f"{show_seconds(job.virtual_s)} received" if job.virtual_measured else "not measured"
    return f"{received}, {show_seconds(job.virtual_granted_s)} granted"


def after_words(job: "Job") -> str:
    """The jobs that it comes after, each as `dfrs submit --after` takes it."""
    kinds = (("", job.after), (":failed", job.after_failed), (":any", job.after_any), (":start", job.after_start))
    return ", ".join(f"{name}{kind}" for kind, names in kinds for name in names)


VERBS = (Verb(show),)
