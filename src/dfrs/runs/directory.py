"""The run directory: `jobs.csv` in the columns of Batsim and evalys, `events.csv`, `summary.json`.

Where the workload has users' commands, `commands.csv` says how each was answered.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from dfrs.model.elastic import NO_COMMANDS, Answer, Answers, CommandKind, ElasticCommands, no_answers
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.model.json_values import plain
from dfrs.model.run import PLACING, Action, Events, Penalty, Run
from dfrs.model.true_speeds import EqualSpeeds, TrueSpeeds
from dfrs.model.writing import make_directory, write_parts, write_text
from dfrs.runs.metrics.intervals import virtual_time
from dfrs.runs.node_sets import node_sets, node_sets_of, parse_node_set

FORMAT = "dfrs-run/1"
FILES = ("jobs.csv", "events.csv", "summary.json")
COMMANDS = "commands.csv"
"""Only where the workload has commands."""
RARE = ("minimum_yield", "checkpoint_s")
"""Columns of jobs.csv, and of a workload, that are there only where a job has another value than 0."""
SPEEDS = "farm.json"
"""Only where nodes are not alike: how fast each job is where."""
SPEEDS_FORMAT = "dfrs-run-farm/1"
ROWS_AT_ONCE = 50_000
"""Their text is in memory at one time, not that of a whole log."""
UNFINISHED = ".dfrs-"
"""So begin the names of directories with runs that are being written."""
_KINDS = tuple(kind.name for kind in CommandKind)
_ANSWERS = tuple(answer.name.lower() for answer in Answer)


def slug(policy: str) -> str:
    """A policy's name as a directory's: `GreedyPM*/per` becomes `GreedyPM+_per`."""
    return re.sub(r"[^A-Za-z0-9._=+-]", "_", policy.replace("*", "+"))


def workload_digest(workload: Workload) -> str:
    """SHA-256 of all columns, of the number of nodes and of the name.

    Requested starts, minimum yields, check-points and commands count only where there are some.
    """
    digest = hashlib.sha256(f"{workload.name}\0{workload.nodes}".encode())
    for column in workload.COLUMNS:
        if column not in _absent(workload):
            # By its place alone the second of the rare ones would be taken for the first.
            digest.update(b"checkpoint_s\0" if column == "checkpoint_s" else b"")
            digest.update(np.ascontiguousarray(getattr(workload, column)).tobytes())
    commands = workload.commands
    if len(commands):
        digest.update(f"\0{len(commands)} commands".encode())
        for f in fields(commands):
            digest.update(np.ascontiguousarray(getattr(commands, f.name)).tobytes())
    return digest.hexdigest()


def _absent(workload: Workload) -> frozenset[str]:
    """Columns of which no job has anything."""
    batch = () if workload.dedicated.any() else ("requested_start_s",)
    return frozenset({*batch, *(name for name in RARE if not getattr(workload, name).any())})


def summary(run: Run, metrics: Mapping[str, object], version: str) -> dict[str, object]:
    """The document of `summary.json`."""
    workload, penalty = run.workload, run.penalty
    equal = bool((run.capacity == 1.0).all())
    model: dict[str, object] = {"model": "fixed", "seconds": penalty.seconds}
    if penalty.bytes_per_s is not None:
        model = {"model": "size", "latency_s": penalty.seconds, "bytes_per_s": penalty.bytes_per_s}
    return {
        "format": FORMAT,
        "version": version,
        "complete": run.complete,
        "policy": run.policy,
        "workload": {
            "name": workload.name,
            "jobs": len(workload),
            "nodes": workload.nodes,
            "commands": len(workload.commands),
            "load": workload.load if np.isfinite(workload.load) else None,
            "sha256": workload_digest(workload),
        },
        "configuration": {
            "nodes": len(run.capacity),
            "capacity": None if equal else run.capacity.tolist(),
            "penalty": model | {"node_bytes": penalty.node_bytes},
            **run.configuration,
        },
        "seed": run.seed,
        "refused": workload.job_id[list(run.refused)].tolist(),
        "metrics": dict(metrics),
        "end_s": run.end_s,
    }


def write_run(run: Run, directory: Path, metrics: Mapping[str, object], version: str) -> None:
    """Write the files, all or none of them, the summary last. Raises InputError where that fails."""
    text = json.dumps(summary(run, metrics, version), indent=1, default=plain, allow_nan=False)
    make_directory(directory)
    try:
        # Of the run that they replace nothing is lost before it is known that there is room for them.
        with TemporaryDirectory(dir=directory, prefix=UNFINISHED) as temporary:
            made = Path(temporary)
            try:
                _write_files(run, made, text)
            except InputError as error:
                raise InputError(str(error).replace(str(made), str(directory), 1)) from None
            for name in ("summary.json", COMMANDS, SPEEDS):
                (directory / name).unlink(missing_ok=True)
            for file in sorted(made.iterdir(), key=lambda file: file.name == "summary.json"):
                file.replace(directory / file.name)
    except OSError as error:
        raise InputError(f"{directory}: cannot write: {error.strerror}") from None


def _write_files(run: Run, directory: Path, text: str) -> None:
    """`text`: of the summary."""
    _write_csv(directory / "events.csv", len(run.events), partial(_events_frame, run))
    of_jobs = partial(_jobs_frame, run, _last_placed(run), virtual_time(run))
    _write_csv(directory / "jobs.csv", len(run.workload), of_jobs)
    if len(run.workload.commands):
        write_text(directory / COMMANDS, _commands_frame(run.answers).write_csv())
    if isinstance(run.speeds, TrueSpeeds):
        document = _speeds_document(run.workload.job_id.tolist(), run.speeds)
        write_text(directory / SPEEDS, json.dumps(document, default=plain, allow_nan=False) + "\n")
    write_text(directory / "summary.json", text + "\n")


def _write_csv(path: Path, rows: int, frame: Callable[[slice], pl.DataFrame]) -> None:
    """Write the rows that `frame` gives of a slice of them."""

    def part(begin: int) -> bytes:
        made = frame(slice(begin, min(begin + ROWS_AT_ONCE, rows)))
        return made.write_csv(include_header=begin == 0).encode()

    write_parts(path, map(part, range(0, max(rows, 1), ROWS_AT_ONCE)))


def _events_frame(run: Run, part: slice) -> pl.DataFrame:
    events = run.events
    names = pl.Series([action.name.lower() for action in Action])
    job = events.job[part]
    of_nodes = job < 0
    job_id = pl.Series(run.workload.job_id[np.where(of_nodes, 0, job)] if len(run.workload) else job)
    return pl.DataFrame(
        {
            "time_s": events.time_s[part],
            "job_id": job_id.zip_with(pl.Series(~of_nodes), pl.Series([None], dtype=pl.Int64)) if len(job) else job_id,
            "action": names.gather(events.action[part]),
            "nodes": pl.Series(node_sets(events.first[part.start : part.stop + 1], events.nodes), dtype=pl.String),
            "yield": pl.Series(events.yield_[part], nan_to_null=True),
            "why": pl.Series(events.reasons, dtype=pl.String).gather(events.why[part]),
        }
    )


def _last_placed(run: Run) -> Ints:
    """(J,) the event that gave each job its last nodes, -1 where none did."""
    placing = np.isin(run.events.action, PLACING)
    last = np.full(len(run.workload), -1, np.int64)
    last[run.events.job[placing]] = np.flatnonzero(placing)
    return last


def _jobs_frame(run: Run, last: Ints, virtual_s: Floats, part: slice) -> pl.DataFrame:
    workload, events = run.workload, run.events
    placed = last[part] >= 0
    nodes = np.full(len(placed), "", object)
    nodes[placed] = node_sets_of(events.first, events.nodes, last[part][placed])

    def optional(values: Floats) -> pl.Series:
        return pl.Series(values[part], dtype=pl.Float64, nan_to_null=True)

    return pl.DataFrame(
        {
            "job_id": workload.job_id[part],
            "submission_time": workload.submit_s[part],
            "requested_number_of_resources": workload.tasks[part],
            "requested_time": optional(workload.estimate_s),
            "success": (~np.isnan(run.finish_s[part])).astype(np.int64),
            "starting_time": optional(run.start_s),
            "execution_time": optional(run.finish_s - run.start_s),
            "finish_time": optional(run.finish_s),
            "waiting_time": optional(run.start_s - workload.release_s),
            "turnaround_time": optional(run.finish_s - workload.release_s),
            "stretch": optional(run.stretch),
            "allocated_resources": pl.Series(nodes.tolist(), dtype=pl.String),
            "processing_time": workload.run_s[part],
            "cpu_need": workload.need[part],
            "memory": workload.memory[part],
            "weight": workload.weight[part],
            "user": workload.user[part],
            "virtual_time": virtual_s[part],
            "pauses": run.count(Action.PAUSE)[part],
            "migrations": run.count(Action.MIGRATE)[part],
            "requested_start_time": optional(workload.requested_start_s),
        }
        | {name: getattr(workload, name)[part] for name in RARE if name not in _absent(workload)}
    )


def _commands_frame(answers: Answers) -> pl.DataFrame:
    kinds, words = (np.array(names, dtype=object) for names in (_KINDS, _ANSWERS))
    return pl.DataFrame(
        {
            "time_s": answers.time_s,
            "job_id": answers.job_id,
            "command": pl.Series(kinds[answers.kind].tolist(), dtype=pl.String),
            "amount": answers.amount,
            "answer": pl.Series(words[answers.answer].tolist(), dtype=pl.String),
            "change_s": answers.change_s,
            "change_tasks": answers.change_tasks,
        }
    )


def _speeds_document(names: Sequence[int], speeds: TrueSpeeds) -> dict[str, object]:
    jobs = zip(names, speeds.rate.tolist(), speeds.memory.tolist(), speeds.thrash.tolist(), strict=True)
    return {
        "format": SPEEDS_FORMAT,
        "name": speeds.name,
        "clusters": list(speeds.partitions),
        "cluster": speeds.partition.tolist(),
        "machine": speeds.machine.tolist(),
        "stretch_s": speeds.stretch_s,
        "copy_s": speeds.copy_s,
        "parallel": speeds.parallel,
        "jobs": [
            {"job_id": name, "rate": rate, "memory": memory, "thrash": thrash} for name, rate, memory, thrash in jobs
        ],
    }


def _read_speeds(directory: Path, names: Sequence[int], nodes: int) -> EqualSpeeds | TrueSpeeds:
    """What `farm.json` says of the jobs of these names, in their order; where there is none, nodes are alike."""
    path = directory / SPEEDS
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return EqualSpeeds()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != SPEEDS_FORMAT:
        raise InputError(f'{path}: format: must be "{SPEEDS_FORMAT}"')
    of = {job["job_id"]: job for job in document["jobs"]}
    jobs, partitions = [of[name] for name in names], tuple(document["clusters"])
    if len(document["cluster"]) != nodes:
        raise InputError(f"{path}: cluster: must be one a node, {nodes}")
    try:
        return TrueSpeeds(
            name=document["name"],
            partitions=partitions,
            partition=np.array(document["cluster"], dtype=np.int64),
            machine=np.array(document["machine"], dtype=np.int64),
            rate=np.array([job["rate"] for job in jobs], dtype=np.float64).reshape(-1, len(partitions), 2),
            memory=np.array([job["memory"] for job in jobs], dtype=np.float64),
            thrash=np.array([job["thrash"] for job in jobs], dtype=np.float64),
            stretch_s=document["stretch_s"],
            copy_s=document["copy_s"],
            parallel=document["parallel"],
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def read_summary(directory: Path) -> dict[str, Any]:
    """The document of `summary.json`. Raises InputError."""
    path = directory / "summary.json"
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is {directory} a run directory?") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f'{path}: format: must be "{FORMAT}"')
    return document


def _read_csv(path: Path, schema: Mapping[str, Any]) -> pl.DataFrame:
    try:
        frame = pl.read_csv(path, schema_overrides=schema, infer_schema=False)
        # Runs without dedicated jobs were once written without this column,
        if "requested_start_time" in schema and "requested_start_time" not in frame.columns:
            frame = frame.with_columns(requested_start_time=pl.lit(None, pl.Float64))
        # and those without minimum yields or check-points are without these.
        for name in RARE:
            if name in schema and name not in frame.columns:
                frame = frame.with_columns(pl.lit(0.0, pl.Float64).alias(name))
        return frame.select(list(schema))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())[:200]}") from None


def read_run(directory: Path) -> Run:
    """The run whose files are in `directory`. Raises InputError, naming file and rule, where they cannot be read."""
    document = read_summary(directory)
    try:
        run = _read_run(directory, document)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{directory}: the files do not belong together: {type(error).__name__} {error}") from None
    except InputError as error:
        prefix = "" if str(directory) in str(error) else f"{directory}: "
        raise InputError(f"{prefix}{error}") from None
    nodes = len(run.capacity)
    if run.capacity.shape != (nodes, 2):
        raise InputError(f"{directory / 'summary.json'}: configuration.capacity: must be [CPU, memory] of each node")
    if not np.isfinite(run.events.time_s).all() or (run.events.nodes >= nodes).any():
        raise InputError(f"{directory / 'events.csv'}: every time must be finite, every node below {nodes}")
    return run


def _read_run(directory: Path, document: Mapping[str, Any]) -> Run:
    integer, real, text = pl.Int64, pl.Float64, pl.String
    jobs = _read_csv(
        directory / "jobs.csv",
        {
            "job_id": integer,
            "submission_time": real,
            "requested_number_of_resources": integer,
            "requested_time": real,
            "processing_time": real,
            "cpu_need": real,
            "memory": real,
            "weight": real,
            "user": integer,
            "requested_start_time": real,
            **dict.fromkeys(RARE, real),
        },
    )
    rows = _read_csv(
        directory / "events.csv",
        {"time_s": real, "job_id": integer, "action": text, "nodes": text, "yield": real, "why": text},
    )
    answers = _read_answers(directory, document)
    workload = Workload(
        job_id=jobs["job_id"].to_numpy(),
        submit_s=jobs["submission_time"].to_numpy(),
        tasks=jobs["requested_number_of_resources"].to_numpy(),
        need=jobs["cpu_need"].to_numpy(),
        memory=jobs["memory"].to_numpy(),
        run_s=jobs["processing_time"].to_numpy(),
        estimate_s=jobs["requested_time"].fill_null(np.nan).to_numpy(),
        user=jobs["user"].to_numpy(),
        weight=jobs["weight"].to_numpy(),
        nodes=document["workload"]["nodes"],
        name=document["workload"]["name"],
        requested_start_s=jobs["requested_start_time"].fill_null(np.nan).to_numpy(),
        **{name: jobs[name].to_numpy() for name in RARE},
        commands=_commands(answers),
    )
    index = {name: k for k, name in enumerate(workload.job_id.tolist())}
    configuration = dict(document["configuration"])
    nodes, capacity = configuration.pop("nodes"), configuration.pop("capacity")
    penalty = configuration.pop("penalty")
    capacity = np.ones((nodes, 2)) if capacity is None else np.array(capacity)
    unequal = configuration.get("farm") is not None
    return Run(
        workload=workload,
        policy=document["policy"],
        capacity=capacity,
        penalty=Penalty(
            seconds=penalty["seconds"] if penalty["model"] == "fixed" else penalty["latency_s"],
            bytes_per_s=penalty.get("bytes_per_s"),
            node_bytes=penalty["node_bytes"],
        ),
        events=_events(rows, index),
        complete=document["complete"],
        end_s=document["end_s"],
        refused=tuple(index[name] for name in document["refused"]),
        answers=answers,
        seed=document["seed"],
        configuration=configuration,
        speeds=_read_speeds(directory, list(index), len(capacity)) if unequal else EqualSpeeds(),
    )


def _read_answers(directory: Path, document: Mapping[str, Any]) -> Answers:
    """The rows of `commands.csv`; none where the workload has no commands."""
    if not document["workload"].get("commands"):
        return no_answers()
    integer, real, text = pl.Int64, pl.Float64, pl.String
    rows = _read_csv(
        directory / COMMANDS,
        {
            "time_s": real,
            "job_id": integer,
            "command": text,
            "amount": real,
            "answer": text,
            "change_s": real,
            "change_tasks": integer,
        },
    )
    return Answers(
        time_s=rows["time_s"].to_numpy(),
        job_id=rows["job_id"].to_numpy(),
        kind=np.array([CommandKind[name] for name in rows["command"].to_list()], dtype=np.int64),
        amount=rows["amount"].to_numpy(),
        answer=np.array([_ANSWERS.index(word) for word in rows["answer"].to_list()], dtype=np.int64),
        change_s=rows["change_s"].to_numpy(),
        change_tasks=rows["change_tasks"].to_numpy(),
    )


def _commands(answers: Answers) -> ElasticCommands:
    """The commands that were answered; of an interrupted run the others are not known."""
    if not len(answers):
        return NO_COMMANDS
    return ElasticCommands(time_s=answers.time_s, job_id=answers.job_id, kind=answers.kind, amount=answers.amount)


def _events(rows: pl.DataFrame, index: Mapping[int, int]) -> Events:
    nodes = [parse_node_set(text) if text else np.zeros(0, np.int64) for text in rows["nodes"].to_list()]
    why = rows["why"].fill_null("")
    reasons = tuple(why.unique(maintain_order=True).to_list())
    number = {text: k for k, text in enumerate(reasons)}
    return Events(
        time_s=rows["time_s"].to_numpy(),
        job=np.array([-1 if name is None else index[name] for name in rows["job_id"].to_list()], dtype=np.int64),
        action=np.array([Action[name.upper()] for name in rows["action"].to_list()], dtype=np.int64),
        yield_=rows["yield"].fill_null(np.nan).to_numpy(),
        why=np.array([number[text] for text in why.to_list()], dtype=np.int64),
        first=np.cumsum([0, *(len(part) for part in nodes)]),
        nodes=np.concatenate(nodes) if nodes else np.zeros(0, np.int64),
        reasons=reasons,
    )
