"""Jobs, nodes and the cluster on a terminal: what the verbs of a live cluster print and `dfrs top` shows live."""

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dfrs.cli.console import out
from dfrs.cli.quantities import show_bytes, show_cores, show_instant, show_seconds
from dfrs.cli.views.reservations import span_and_reason
from dfrs.live.protocol.resources import (
    ENDED,
    Activity,
    Cluster,
    ClusterSnapshot,
    Job,
    JobState,
    Node,
    NodeState,
    NodeTask,
    Price,
    shown_yield,
)
from dfrs.model.text import visible

WIDE = 100
"""Columns from which on there is room for whole names and error bars."""
WIDEST = 120
"""Columns from which on there is room for what ended jobs used."""
NOTICEABLE = 0.05
"""Programs beside the cluster's are shown where they use more than this part of a node."""
SHORT = 0.005
"""A yield below its minimum by no more than this is as promised."""
GRANTED = "*"
"""Follows a yield that is granted, of a job of which nothing is measured yet."""
_BESIDE = {
    JobState.WAITING: ("waits", "wait"),
    JobState.PENDING: ("is pending", "are pending"),
    JobState.HELD: ("is held", "are held"),
    JobState.PAUSED: ("is paused", "are paused"),
}
_COLOURS = ("blue", "magenta", "cyan", "green", "yellow", "bright_blue", "bright_magenta", "bright_cyan")
_STATES = {
    JobState.RUNNING: "green",
    JobState.STARTING: "green",
    JobState.WAITING: "yellow",
    JobState.PENDING: "dim",
    JobState.HELD: "dim",
    JobState.PAUSED: "red",
    JobState.ENDING: "yellow",
    JobState.FAILED: "red",
    JobState.CANCELLED: "dim",
}
_NODE_STATES = {NodeState.UP: "green", NodeState.DRAINING: "yellow"} | dict.fromkeys(
    (NodeState.SILENT, NodeState.UNHEALTHY, NodeState.LOST), "red"
)
_ACTIONS = {
    "pause": "red",
    "requeue": "red",
    "fail": "red",
    "lost": "red",
    "unhealthy": "red",
    "finish": "bold",
    "start": "green",
    "resume": "green",
    "migrate": "yellow",
    "share": "dim",
    "capacity": "yellow",
}
_JOB_COLUMNS = (
    ("job", True),
    ("name", False),
    ("user", False),
    ("state", False),
    ("tasks", True),
    ("need", True),
    ("yield", False),
    ("memory", True),
    ("nodes", False),
    ("age", True),
)
_JOB_HEADINGS = tuple(heading for heading, _ in _JOB_COLUMNS)
_JOB_WORDS = tuple(map(_JOB_HEADINGS.index, ("name", "user", "nodes")))
"""Columns that can be shortened and still be understood."""
LEAST_WORD = 5
"""So many characters at least are shown of these."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def colour(job: int) -> str:
    """The colour of a job, the same in every view."""
    return _COLOURS[job % len(_COLOURS)]


def bar(fraction: float, width: int) -> str:
    """A bar of `width` cells, exact to an eighth of a cell, padded with spaces."""
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def shorten(text: str, width: int) -> str:
    """At most `width` characters, and none that moves the cursor or turns round what is beside it."""
    shown = visible(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def yield_text(value: float | None, beside: str = "") -> Text:
    """A yield as a bar and a number, and what is said of it; its colour says how well the job is served."""
    if value is None:
        return Text("-", style="dim")
    style = "green" if value >= 0.66 else "yellow" if value >= 0.33 else "red"
    return Text.assemble((bar(value, 4), style), f" {value:.2f}", (beside, "dim"))


def job_yield(job: Job, *, wide: bool) -> Text:
    """What a job receives, in a `wide` table with its error bar; before that is measured, what it was granted."""
    shown = shown_yield(job)
    if shown is None:
        return yield_text(None)
    if job.yield_received is None:
        return yield_text(shown, GRANTED)
    return yield_text(shown, f"±{job.yield_received_error or 0.0:.2f}" if wide else "")


def yield_words(job: Job) -> str:
    """What a job receives and what it was granted; empty where it is not on nodes."""
    granted = "" if job.yield_granted is None else f"{job.yield_granted:.2f} granted"
    if job.yield_received is None:
        return granted and f"{granted}, nothing is measured yet"
    return f"{job.yield_received:.2f}±{job.yield_received_error or 0.0:.2f} received, {granted}"


def minimum_words(job: Job) -> str:
    """The yield that a job was promised, and whether it is granted; empty where nothing was promised."""
    if not job.minimum_yield:
        return ""
    short = job.yield_granted is not None and job.yield_granted < job.minimum_yield - SHORT
    return f"{job.minimum_yield:g}" + ("; not kept now: its nodes have too little CPU" if short else "")


def weight_words(job: Job) -> str:
    """What its priority is multiplied by; empty where that is 1 for everybody."""
    if job.fair_share is None:
        return "" if job.weight == 1.0 else f"{job.weight:g}"
    return f"{job.weight:g}, times {job.fair_share:.2g} by what was used lately"


def need_text(job: Job) -> str:
    """What each task needs, in cores, with the error bar of an estimate."""
    if job.need_error_cores is None:
        return show_cores(job.need_cores)
    return f"{show_cores(job.need_cores)}±{show_cores(job.need_error_cores)}"


def place_text(nodes: Sequence[str]) -> str:
    """The nodes of a job, each once; the first and how many more."""
    different = list(dict.fromkeys(nodes))
    return "" if not different else different[0] if len(different) == 1 else f"{different[0]} +{len(different) - 1}"


def _plain_table(*columns: tuple[str, bool]) -> Table:
    """Without lines; each column by its heading and whether numbers are aligned to the right. Nothing wraps."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for heading, right in columns:
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    return table


def job_table(jobs: Iterable[Job], now: float, width: int) -> Table:
    """A row a job, in 80 columns with short names, in more with long ones and error bars.

    Where that is still too wide, the longest of names, users and nodes become shorter: figures are never cut.
    """
    wide = width >= WIDE
    rows = [_job_row(job, now, wide=wide) for job in jobs]
    table = _plain_table(*_JOB_COLUMNS)
    longest = [
        max(map(cell_len, column)) for column in zip(_JOB_HEADINGS, *(map(str, row) for row in rows), strict=True)
    ]
    excess = sum(longest) + len(longest) - 1 - width
    for _ in range(excess):
        widest = max(_JOB_WORDS, key=lambda k: longest[k])
        if longest[widest] <= LEAST_WORD:
            break
        longest[widest] -= 1
    for column, least in zip(table.columns, longest, strict=True):
        column.min_width = least
    for row in rows:
        for k in _JOB_WORDS:
            row[k].truncate(longest[k], overflow="ellipsis")
        table.add_row(*row)
    return table


def _job_row(job: Job, now: float, *, wide: bool) -> list[Text]:
    name, user, node = (24, 16, 20) if wide else (10, 8, 9)
    return [
        Text(str(job.id), style=f"bold {colour(job.id)}"),
        Text(shorten(job.name, name)),
        Text(shorten(job.user, user)),
        Text(job.state.value, style=_STATES.get(job.state, "")),
        Text(str(job.tasks)),
        Text(need_text(job)),
        job_yield(job, wide=wide),
        Text(show_bytes(job.memory_bytes)),
        Text(shorten(place_text(job.nodes), node)),
        Text(show_seconds(now - job.submitted_at)),
    ]


def table_width(table: Table) -> int:
    """Columns of the terminal that a table of jobs takes, with a space between two of its own."""
    return sum(column.min_width or 0 for column in table.columns) + len(table.columns) - 1


def reasons(jobs: Iterable[Job], most: int = 20) -> list[Text]:
    """A line for each job that does not run: why."""
    silent = [job for job in jobs if job.state not in {JobState.RUNNING, *ENDED} and job.why]
    lines = [Text.assemble((f"{job.id}", colour(job.id)), (f": {visible(job.why)}", "dim")) for job in silent[:most]]
    if len(silent) > most:
        lines.append(Text(f"… and {len(silent) - most} more: dfrs explain JOB", style="dim"))
    return lines


def measure_line(jobs: Iterable[Job]) -> Text | None:
    """What the sign at some yields means; None where none has it."""
    if all(job.yield_received is not None or job.yield_granted is None for job in jobs):
        return None
    return Text(f"{GRANTED} as granted: what these jobs receive is not measured yet", style="dim")


def share_bar(node: Node, width: int) -> Text:
    """A node's CPU, a piece for each task as wide as its share: job ids on the colours of the jobs."""
    text, taken, drawn = Text(), 0.0, 0
    for task in sorted(node.tasks, key=lambda task: (task.job, task.rank)):
        if task.paused or task.share_cores <= 0:
            continue
        taken += task.share_cores
        cells = min(width, round(taken / node.cpus * width)) - drawn
        drawn += cells
        name = str(task.job)
        # Without its border a number would run into the next one.
        piece = name.ljust(cells - 1) + "│" if cells > len(name) else "." * cells
        text.append(piece, style=f"black on {colour(task.job)}")
    text.append("·" * (width - drawn), style="dim")
    return text


def node_table(nodes: Iterable[Node], width: int, *, tasks: bool = False, remarks: bool = True) -> RenderableType:
    """A row a node: its CPU shared out by job, what is used of it, its memory; with `tasks` also a line for each.

    With `remarks` also lines below for what is special about some.
    """
    shown = list(nodes)
    longest = max([4, *(len(shorten(node.name, 16)) for node in shown)])
    beside = any(_noticeable(node) for node in shown)
    cells = max(12, min(60, width - longest - (47 if beside else 39)))
    parts: list[RenderableType] = []
    for group in [[node] for node in shown] if tasks else [shown]:
        columns = [("node", False), ("state", False), ("cpu by job", False), ("used", True), ("memory", True)]
        widths = [longest, 8, cells, 12, 13]
        if beside:
            columns.insert(4, ("others", True))
            widths.insert(4, 7)
        table = _plain_table(*columns)
        table.show_header = not parts
        for column, least in zip(table.columns, widths, strict=True):
            column.min_width = least
        for node in group:
            table.add_row(*_node_row(node, cells, beside=beside))
        parts.append(table)
        if remarks:
            parts += [Text(f"  {words}") for words in _remarks(group)]
        if tasks:
            parts += node_details(group[0], width)
    if beside and remarks:
        parts.append(Text("others: cores that programs beside the cluster's use of the node's CPUs", style="dim"))
    return Group(*parts)


def _remarks(nodes: Sequence[Node]) -> list[str]:
    """Each kind for all of the nodes before the next."""
    names = [shorten(node.name, 16) for node in nodes]
    named = list(zip(names, nodes, strict=True))
    return [
        *(f"{name} gets no jobs: {visible(node.problem)}" for name, node in named if node.problem),
        *(f"{name} is drained: {visible(node.drain_reason)}" for name, node in named if node.drain_reason),
        *(f"{name} is reserved {span_and_reason(each)}" for name, node in named for each in node.reservations),
        *(left_words(node) for node in nodes if node.left_cores is not None),
        *(f"{name} has {', '.join(node.features)}" for name, node in named if node.features),
        *(resource_words(node) for node in nodes if node.resources or node.resources_used),
    ]


def left_words(node: Node) -> str:
    """What is left of a node, where that is not all of it."""
    whole = show_cores(node.cpus)
    return f"{shorten(node.name, 16)} counts as {node.left_cores or 0.0:.2f} of {whole} cores: others use the rest"


def resource_words(node: Node) -> str:
    """What a node has of named resources, and how much of it is in use."""
    names = sorted({*node.resources, *node.resources_used})
    counts = (f"{name} {node.resources_used.get(name, 0)} of {node.resources.get(name, 0)}" for name in names)
    return f"{shorten(node.name, 16)} has resources, in use: {', '.join(counts)}"


def _noticeable(node: Node) -> bool:
    return (node.outside_cores or 0.0) > NOTICEABLE * node.cpus


def _node_row(node: Node, cells: int, *, beside: bool) -> tuple[RenderableType, ...]:
    held = node.memory_bytes - node.memory_free_bytes
    others = [f"{node.outside_cores:.2f}" if _noticeable(node) else ""] if beside else []
    return (
        Text(shorten(node.name, 16)),
        Text(node.state.value, style=_NODE_STATES.get(node.state, "")),
        share_bar(node, cells),
        f"{node.used_cores:.2f} of {show_cores(node.cpus)}",
        *others,
        f"{show_bytes(held) if held else '0'} of {show_bytes(node.memory_bytes)}",
    )


def node_details(node: Node, width: int) -> list[Text]:
    """A line a task, and what the node cannot do."""
    lines: list[Text] = []
    for task in sorted(node.tasks, key=lambda task: (task.job, task.rank)):
        name = f" {shorten(task.name, 24)} ({visible(task.user)}): {_task_words(task)}"
        lines.append(Text.assemble("  ", (f"{task.job}.{task.rank}", colour(task.job)), name))
    lines.extend(Text(f"  {shorten(note, max(20, width - 2))}", style="dim") for note in node.notes)
    return lines


def _task_words(task: NodeTask) -> str:
    if task.paused:
        return "paused"
    used = "" if task.used_cores is None else f", {task.used_cores:.2f} used"
    return f"{task.share_cores:.2f} cores granted{used}"


def cluster_line(cluster: Cluster) -> Text:
    """The whole in three lines: policy, jobs, nodes, the least and the median yield beside the bound."""
    jobs = ", ".join(f"{count} {state.value}" for state, count in cluster.jobs.items() if count and state not in ENDED)
    nodes = ", ".join(f"{count} {state.value}" for state, count in cluster.nodes.items() if count)
    text = Text.assemble(
        (visible(cluster.name), "bold"),
        f"  {visible(cluster.policy)}  needs: {cluster.discovery}{_standbys(cluster)}\n",
        f"jobs: {jobs or 'none'};  nodes: {nodes or 'none'};  "
        f"CPU: {cluster.used_cores:.2f} of {show_cores(cluster.cpus)} cores{_left(cluster)}\n",
    )
    text.append(_yields(cluster))
    return text


def _standbys(cluster: Cluster) -> str:
    if cluster.standbys is None:
        return ""
    return f"  leader, {cluster.standbys or 'no'} standby{'s' if cluster.standbys > 1 else ''}"


def _left(cluster: Cluster) -> str:
    return "" if cluster.left_cores is None else f", {cluster.left_cores:.2f} left"


def price_line(prices: Mapping[str, Price]) -> Text:
    """What a pause, a resume and a move cost, of those that are known."""
    found = [f"{verb} {_price(price)}" for verb, price in prices.items() if price.samples and price.seconds]
    return Text(f"measured cost to a job: {', '.join(found)}" if found else "", style="dim")


def _price(price: Price) -> str:
    times = "once" if price.samples == 1 else f"{price.samples} times"
    return f"{'under 0.1' if price.seconds < 0.1 else f'{price.seconds:.1f}'} s ({times})"


def yields_words(cluster: Cluster) -> str:
    """The least yield of jobs on nodes, the most that it could be, the median; how many jobs have none."""
    beside = [
        f"{count} {one if count == 1 else many}"
        for state, (one, many) in _BESIDE.items()
        if (count := cluster.jobs.get(state, 0))
    ]
    return "; ".join(filter(None, [_yields(cluster), ", ".join(beside)]))


def _yields(cluster: Cluster) -> str:
    least, bound = cluster.minimum_yield, cluster.bound
    if least is None:
        return "no job runs"
    words = f"minimum yield {least:.2f}" + ("" if bound is None else f" of at most {bound:.2f}")
    words += "" if cluster.median_yield is None else f", median {cluster.median_yield:.2f}"
    return f"{words} ({cluster.unmeasured} as granted)" if cluster.unmeasured else words


def activity_line(event: Activity, now: float, *, with_job: bool = True) -> Text:
    """One thing that happened, in a line."""
    text = Text(show_instant(event.time, now), style="dim")
    subject = f"job {event.job}" if event.job is not None else f"node {event.node}" if event.node else "cluster"
    if with_job:
        text.append(f"  {subject}", style=colour(event.job) if event.job is not None else "")
    text.append(f"  {event.action}", style=_ACTIONS.get(event.action, ""))
    if event.nodes:
        text.append(f" on {place_text(event.nodes)}")
    if event.yield_ is not None:
        text.append(f" at yield {event.yield_:.2f}")
    if event.why:
        text.append(f": {visible(event.why)}")
    if event.by:
        text.append(f" (by {visible(event.by)})", style="dim")
    return text


def exit_text(job: Job) -> Text:
    """How it ended."""
    words = visible(job.exit) or job.state.value
    return Text(words, style="" if job.state == JobState.DONE else _STATES.get(job.state, ""))


def history_table(jobs: Iterable[Job], now: float, width: int) -> Table:
    """A row an ended job: when, how long, its stretch and mean yield, how it ended; if there is room, what it used."""
    name, user = (24, 16) if width >= WIDE else (12, 8)
    used = width >= WIDEST
    table = _plain_table(
        ("job", True),
        ("name", False),
        ("user", False),
        ("ended", False),
        ("ran", True),
        ("waited", True),
        *((("cpu", True), ("peak", True)) if used else ()),
        ("yield", False),
        ("stretch", True),
    )
    table.add_column("end", overflow="fold")
    for job in jobs:
        table.add_row(
            Text(str(job.id), style=f"bold {colour(job.id)}"),
            Text(shorten(job.name, name)),
            Text(shorten(job.user, user)),
            "" if job.ended_at is None else show_instant(job.ended_at, now),
            *_times(job),
            *(_used(job) if used else ()),
            yield_text(mean_yield(job), "" if job.virtual_measured else GRANTED),
            "-" if job.stretch is None else f"{job.stretch:.2f}",
            exit_text(job),
        )
    return table


def _times(job: Job) -> tuple[str, str]:
    if job.started_at is None or job.ended_at is None:
        return "-", "-"
    return show_seconds(job.ended_at - job.started_at), show_seconds(job.started_at - job.submitted_at)


def _used(job: Job) -> tuple[str, str]:
    return show_seconds(job.cpu_s), "-" if job.peak_bytes is None else show_bytes(job.peak_bytes)


def mean_yield(job: Job) -> float | None:
    """Of an ended job, from its first start to its end; None if it never ran."""
    if job.started_at is None or job.ended_at is None or job.ended_at <= job.started_at:
        return None
    return min(1.0, job.virtual_s / (job.ended_at - job.started_at))


def frame(seen: ClusterSnapshot, activity: Sequence[Activity], width: int, height: int) -> RenderableType:
    """All of it in `width` columns and at most `height` lines: the cluster, its nodes, jobs, what happened last.

    Of the jobs of the snapshot, that need not be all: how many there are is what the cluster counts.
    """
    cluster, nodes, jobs = seen.cluster, seen.nodes, seen.jobs
    order = list(JobState)
    present = sorted(jobs, key=lambda job: (job.state != JobState.RUNNING, order.index(job.state), job.id))
    open_ = sum(count for state, count in cluster.jobs.items() if state not in ENDED)
    head = cluster_line(cluster).wrap(out, width)
    room = max(6, height - len(head) - 5)
    node_rows = min(len(nodes), max(2, room // 3))
    job_rows = min(len(present), max(2, (room - node_rows) * 2 // 3))
    event_rows = max(0, room - node_rows - job_rows - 1)
    parts: list[RenderableType] = [*head, Text(), node_table(nodes[:node_rows], width, remarks=False), Text()]
    parts.append(job_table(present[:job_rows], cluster.now, width))
    if hidden := len(nodes) - node_rows + max(open_, len(present)) - job_rows:
        parts.append(Text(f"… {hidden} more do not fit here: dfrs nodes, dfrs queue", style="dim"))
    recent = list(activity)[-event_rows:] if event_rows else []
    lines = [activity_line(event, cluster.now) for event in reversed(recent)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(*parts, Text(), *lines)
