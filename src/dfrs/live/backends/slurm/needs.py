"""What a job of Slurm's queue asks for, as a request to the controller."""

import re

from dfrs.live.backends.slurm.marks import was_taken_in
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.protocol.resources import JobRequest, Restart
from dfrs.model.errors import InputError
from dfrs.model.text import visible

PREFIX = "dfrs:"
HELD = "held"
"""What a comment says of a job that its user holds; job_submit.lua writes it."""
RULE = "must be cpu=CORES (above 0, at most the job's CPUs), min-yield=FRACTION (0 to 1) or held"
LONGEST_S = 1e9
"""Thirty years: a longer limit is none."""
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def request_of(job: SlurmJob, whole_bytes: int) -> JobRequest:
    """The request; a job that names no memory has `whole_bytes`, that of a node. Raises InputError."""
    if job.nodes > 1:
        raise InputError(f"--nodes={job.nodes}: must be 1: dfrs places jobs of one node only")
    if job.parts:
        raise InputError("heterogeneous job: must be one job: dfrs places jobs of one node only")
    needs = read_comment(job.comment, job.cpus)
    return JobRequest(
        command=(visible(job.command) or job.name or "sbatch",),
        name=visible(job.name)[:128] or None,
        account=_name(job.account, _ACCOUNT, 64) if job.account else None,
        cpu_cores=needs.get("cpu", float(job.cpus)),
        memory_bytes=max(1 << 20, job.memory_bytes or whole_bytes),
        minimum_yield=needs.get("min-yield", 0.0),
        estimate_s=min(job.time_limit_s or 0.0, LONGEST_S) or None,
        time_limit_s=min(job.time_limit_s or 0.0, LONGEST_S) or None,
        held=HELD in needs or job.special,
        restart=Restart.ON_NODE_LOSS if job.requeue else Restart.NEVER,
        nodelist=_nodelist(job),
    )


def _nodelist(job: SlurmJob) -> tuple[str, ...]:
    """The node that its user wants. Where dfrs has taken it in before, its choice stands in the place of that. Raises
    InputError.
    """
    if not job.pending or not job.node or was_taken_in(job.admin_comment):
        return ()
    if set(job.node) & set("[],"):
        raise InputError(f"--nodelist={job.node}: must be one node: dfrs places jobs of one node only")
    return (job.node,)


def user_of(job: SlurmJob) -> str:
    """The name under which its user has jobs here."""
    return _name(job.user, _USER, 32)


def _name(text: str, rule: re.Pattern[str], longest: int) -> str:
    """It, or in the place of one that no job can have here one that is like it."""
    return text if rule.fullmatch(text) else "_" + re.sub(r"[^A-Za-z0-9_.-]", "_", text)[: longest - 1]


def read_comment(comment: str, cpus: int) -> dict[str, float]:
    """Needs in `dfrs: cpu=0.5 min-yield=0.2 held; anything else`; none in other comments.

    Raises InputError, naming what it cannot read.
    """
    found: dict[str, float] = {}
    for word in _words(comment):
        name, _, text = word.partition("=")
        try:
            value = 1.0 if word == HELD else float(text)
        except ValueError:
            value = float("nan")
        if not {"cpu": 0 < value <= cpus, "min-yield": 0 <= value <= 1, HELD: word == HELD}.get(name, False):
            raise InputError(f"--comment: {word[:40]}: {RULE}")
        found[name] = value
    return found


def is_held(comment: str) -> bool:
    """Whether its user holds the job."""
    return HELD in _words(comment)


def _words(comment: str) -> list[str]:
    text = comment.lstrip()
    return text.removeprefix(PREFIX).partition(";")[0].replace(",", " ").split() if text.startswith(PREFIX) else []
