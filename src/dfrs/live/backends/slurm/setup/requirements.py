"""What a Slurm has to be like, so that dfrs can decide for one of its partitions: what each line does, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dfrs.live.backends.slurm.setup.conf_file import ConfLine, Partition, SlurmConf
from dfrs.live.doctor.findings import Finding, Verdict, ok, warning, wrong

JOBS_A_CPU = 64
"""Jobs that Slurm lets share a CPU; how many there are is decided by dfrs."""
KEPT_S = 300
"""So long Slurm should remember jobs that have ended: dfrs hears of their ends from it, also after a restart."""
NAMED = 5
"""So many nodes are named; of others, how many there are."""
CGROUP = "cgroup.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A line that has to say something else, or to be there."""

    file: Path
    line: ConfLine | None
    """The one that is there; None: it is added."""
    values: Mapping[str, str]
    why: str

    @property
    def text(self) -> str:
        """The line as it shall be."""
        if self.line is not None:
            return self.line.changed(self.values)
        return " ".join(f"{key}={value}" for key, value in self.values.items())


@dataclass(slots=True)
class Review:
    """What was found, and what would mend it."""

    findings: list[Finding] = field(default_factory=list[Finding])
    changes: list[Change] = field(default_factory=list[Change])
    left: list[Finding] = field(default_factory=list[Finding])
    """What no change mends: the site has to choose."""

    def need(
        self,
        conf: SlurmConf,
        key: str,
        wanted: str,
        why: str,
        *,
        fine: bool,
        found: str,
        verdict: Verdict = "wrong",
    ) -> None:
        """A key of the whole file: whether it is `fine`, and what it has to be."""
        check = f"{conf.path.name}: {key}"
        if fine:
            self.findings.append(ok(check, found))
            return
        there = conf.setting(key)
        line = None if there is None else there[1]
        place = "" if line is None else f" ({line.place})"
        mend = f"{key}={wanted}: {why}"
        self.findings.append(Finding(check=check, verdict=verdict, found=f"{found}{place}", mend=mend))
        file = conf.path if line is None else line.file
        self.changes.append(Change(file=file, line=line, values={key: wanted}, why=why))


def review(conf: SlurmConf, cgroup: SlurmConf | None, partition: Partition) -> Review:
    """All findings about the files of a site; without a `cgroup` there is no cgroup.conf."""
    made = Review()
    _allocation(made, conf)
    _control_groups(made, conf, cgroup)
    _submission(made, conf)
    _partition(made, conf, partition)
    hindrances = list(_hindrances(conf, partition))
    made.findings += hindrances
    made.left += [each for each in hindrances if each.verdict != "ok"]
    return made


def _allocation(made: Review, conf: SlurmConf) -> None:
    kind = conf.get("SelectType", "select/linear")
    made.need(
        conf,
        "SelectType",
        "select/cons_tres",
        "gives out CPUs and memory, not whole nodes",
        fine=kind.lower() == "select/cons_tres",
        found=kind,
    )
    parameters = conf.words("SelectTypeParameters", "CR_Core_Memory")
    shown = conf.get("SelectTypeParameters", "not set: CR_Core_Memory")
    kept = [word for word in conf.get("SelectTypeParameters").split(",") if not word.upper().startswith("CR_")]
    made.need(
        conf,
        "SelectTypeParameters",
        ",".join(["CR_CPU_Memory", *kept]),
        "memory is given to one job only, CPUs are shared",
        fine="cr_cpu_memory" in parameters,
        found=shown,
        verdict="warning" if parameters & {"cr_core_memory", "cr_socket_memory"} else "wrong",
    )


def _control_groups(made: Review, conf: SlurmConf, cgroup: SlurmConf | None) -> None:
    track = conf.get("ProctrackType", "proctrack/cgroup")
    made.need(
        conf,
        "ProctrackType",
        "proctrack/cgroup",
        "each job has a control group, whose weight is its share",
        fine=track.lower() == "proctrack/cgroup",
        found=track,
    )
    plugins = conf.words("TaskPlugin")
    rest = [word for word in conf.get("TaskPlugin").split(",") if word and not word.lower().endswith("affinity")]
    made.need(
        conf,
        "TaskPlugin",
        ",".join([word for word in rest if not word.lower().endswith(("cgroup", "none"))] + ["task/cgroup"]),
        "keeps jobs within their memory, and lets shares count on all CPUs of a node: task/affinity pins jobs to some",
        fine="cgroup" in plugins and "affinity" not in plugins,
        found=conf.get("TaskPlugin", "not set"),
    )
    groups = cgroup or SlurmConf(conf.path.with_name(CGROUP), ())
    made.need(
        groups,
        "ConstrainCores",
        "no",
        "shares count on all CPUs of a node: a job that is confined to some meets only those who are there, too",
        fine=groups.get("ConstrainCores", "no").lower() == "no",
        found=groups.get("ConstrainCores", "no, as nothing is said"),
    )
    made.need(
        groups,
        "ConstrainRAMSpace",
        "yes",
        "a job that takes more memory than it has does not take it from others",
        fine=groups.get("ConstrainRAMSpace", "no").lower() == "yes",
        found=groups.get("ConstrainRAMSpace", "no, as nothing is said"),
        verdict="warning",
    )


def _submission(made: Review, conf: SlurmConf) -> None:
    plugins = [word.strip() for word in conf.get("JobSubmitPlugins").split(",") if word.strip()]
    made.need(
        conf,
        "JobSubmitPlugins",
        ",".join([*plugins, "lua"]),
        "jobs of the partition are held when they are submitted, until dfrs starts them",
        fine="lua" in conf.words("JobSubmitPlugins"),
        found=",".join(plugins) or "not set",
    )
    requeue = conf.get("JobRequeue", "1")
    made.need(
        conf,
        "JobRequeue",
        "0",
        "after a node has failed, dfrs decides where its jobs run, not Slurm; who wants that says --requeue",
        fine=requeue == "0",
        found=conf.get("JobRequeue", "not set: 1"),
        verdict="warning",
    )


def _partition(made: Review, conf: SlurmConf, partition: Partition) -> None:
    check = f"partition {partition.name}"
    share = partition.get("OverSubscribe", "Shared") or "NO"
    kind, _, count = share.upper().partition(":")
    enough = kind == "FORCE" and count.isdecimal() and int(count) >= JOBS_A_CPU
    if enough:
        made.findings.append(ok(f"{check}: OverSubscribe", share))
    else:
        wanted = f"FORCE:{JOBS_A_CPU}"
        why = f"up to {JOBS_A_CPU} jobs share a CPU, whatever they ask for"
        mend = f"OverSubscribe={wanted}: {why}"
        found = f"{share} ({partition.line.place})"
        verdict = "warning" if kind == "FORCE" else "wrong"
        made.findings.append(Finding(check=f"{check}: OverSubscribe", verdict=verdict, found=found, mend=mend))
        key = "Shared" if partition.line.get("Shared") is not None else "OverSubscribe"
        made.changes.append(Change(file=partition.line.file, line=partition.line, values={key: wanted}, why=why))


def _hindrances(conf: SlurmConf, partition: Partition) -> Iterator[Finding]:
    """What depends on what else the site wants."""
    yield from _preemption(conf, partition)
    yield from _neighbours(conf, partition)
    yield from _memory(conf, partition)
    yield from _kept_memory(conf, partition)
    yield from _delays(conf)
    if (partition.get("ExclusiveUser") or "NO").upper() == "YES":
        found = f"YES ({partition.line.place})"
        yield wrong(f"partition {partition.name}: ExclusiveUser", found, "ExclusiveUser=NO: users share nodes")
    if (partition.get("SelectTypeParameters") or "NONE").upper() != "NONE":
        found = f"{partition.get('SelectTypeParameters')} ({partition.line.place})"
        mend = "leave it out: CPUs are shared, not cores or sockets"
        yield warning(f"partition {partition.name}: SelectTypeParameters", found, mend)
    if conf.get("SuspendProgram") and partition.name not in conf.get("SuspendExcParts").split(","):
        mend = f"SuspendExcParts={partition.name}, or jobs wait until their nodes have booted"
        yield warning("slurm.conf: SuspendProgram", "Slurm powers idle nodes down", mend)
    kept = conf.get("MinJobAge", str(KEPT_S))
    if kept.isdecimal() and 0 < int(kept) < KEPT_S:
        mend = f"MinJobAge={KEPT_S}, or ends of jobs may be missed while dfrs is away"
        yield warning("slurm.conf: MinJobAge", f"{kept} s", mend)


def _preemption(conf: SlurmConf, partition: Partition) -> Iterator[Finding]:
    check = "slurm.conf: PreemptMode"
    modes = conf.words("PreemptMode", "OFF")
    own = (partition.get("PreemptMode") or "").upper()
    if "gang" in modes:
        mend = "leave GANG out: Slurm would pause and resume jobs by turns"
        yield wrong(check, conf.get("PreemptMode"), mend)
    elif conf.words("PreemptType", "none") - {"none"} and modes != {"off"} and own != "OFF":
        mend = f"PreemptMode=OFF on partition {partition.name}: else Slurm may pause or end its jobs for others"
        yield wrong(check, f"{conf.get('PreemptMode')}, by {conf.get('PreemptType')}", mend)
    else:
        yield ok(check, conf.get("PreemptMode", "OFF"))


def _neighbours(conf: SlurmConf, partition: Partition) -> Iterator[Finding]:
    check = f"partition {partition.name}: Nodes"
    nodes = conf.nodes(partition)
    others = [each.name for each in conf.partitions() if each.name != partition.name and conf.nodes(each) & nodes]
    if not nodes:
        yield wrong(check, "none", "name its nodes")
    elif others:
        mend = "give each node to one partition: on these, Slurm starts jobs of which dfrs knows nothing"
        yield wrong(check, f"shared with {', '.join(others)}", mend)
    else:
        yield ok(check, f"{len(nodes)}, in no other partition")


def _memory(conf: SlurmConf, partition: Partition) -> Iterator[Finding]:
    keys = ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")
    said = next(((key, value) for key in keys if (value := partition.get(key) or conf.get(key)) not in {"", "0"}), None)
    if said is not None:
        yield ok(f"partition {partition.name}: memory", f"{said[0]}={said[1]}")
    else:
        mend = "DefMemPerCPU=MEGABYTES there, or each job without --mem has a node's whole memory and shares with none"
        yield warning(f"partition {partition.name}: memory", "no default", mend)


def _kept_memory(conf: SlurmConf, partition: Partition) -> Iterator[Finding]:
    """dfrs counts all memory of a node: what Slurm does not give out of it is room in which nothing starts."""
    nodes, limits = conf.nodes(partition), conf.of_nodes("MemSpecLimit")
    kept = sorted(node for node, limit in limits.items() if node in nodes and limit not in {"", "0"})
    if kept:
        more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
        mend = "leave it out and lower RealMemory by as much: jobs that dfrs starts in that memory would wait there"
        yield wrong(f"partition {partition.name}: MemSpecLimit", f"on {', '.join(kept[:NAMED])}{more}", mend)


def _delays(conf: SlurmConf) -> Iterator[Finding]:
    words = {word.partition("=")[0].strip().lower() for word in conf.get("SchedulerParameters").split(",")}
    if found := words & {"defer", "defer_batch"}:
        mend = "leave it out, or what dfrs starts waits for Slurm's next look at its queue, for up to a minute"
        yield warning("slurm.conf: SchedulerParameters", ", ".join(found), mend)
    if conf.get("CompleteWait", "0") != "0":
        mend = "CompleteWait=0, or starts wait for the ends of others"
        yield warning("slurm.conf: CompleteWait", conf.get("CompleteWait"), mend)
