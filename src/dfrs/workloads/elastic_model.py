"""The workload model of [Kumar2011] IV-D: batch and dedicated jobs on a machine that gives out groups of processors.

It is the model of Lublin and Feitelson (`dfrs.workloads.lublin`) for one kind of jobs, with these changes:

- **Sizes** are small with probability `ps`, else large: a uniform draw, rounded to the nearest whole number of groups,
  from 1 to 30 % of the machine or from 40 % to all of it. On the document's 10 groups of 32 processors that is [1, 3]
  and [4, 10], as it has them. The mean is then 192, 144 and 96 processors for ps = 0.2, 0.5 and 0.8; the document's
  runs had 180.84, 139.35 and 89.72, nearer to the 179.2, 136 and 92.8 of large sizes drawn from [3, 10].
- **Run times** have Table I, which is the whole-sample column of the Lublin model; p = -0.0054 * processors + 0.78 is
  clipped to [0, 1], and what is above e^12 s is drawn again, as there. Estimates are the run times.
- **Arrivals** have Table II: ln of the gap, in seconds of mean intensity, is gamma of shape 13.2303 * 1.0225; above 13
  it is drawn again, as in the Lublin model. That has 10.2303, but here 13.2303 is meant: with it the table's range of
  beta_arr, 0.4101 to 0.6101, spans offered loads from 4.8 to 0.27 at ps = 0.5; with 10.2303 it would be 22 to 1.07.
  A gamma distribution over the day, which starts at 05:00, gives each *hour* its intensity, not each half hour.
- **Load**: the scale of the gaps, beta_arr, is solved for, so that this very workload offers the wanted load.
- **Dedicated jobs** and **commands** are added with given probabilities. Requested starts come after the submission,
  and amounts are, by the geometric distribution of the given mean: the exponential one in whole numbers from 1 on.

Where the document is silent: the first job comes at a random point of the first day's arrivals, a command at a random
second from its job's submission until the job, started as early as may be, has run.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import gammainc, gammaincinv

from dfrs.model.elastic import TIME_KINDS, CommandKind, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.workloads.cwf import Cwf
from dfrs.workloads.lublin import LONGEST_LN_GAP, LONGEST_LN_RUN, WHOLE_SAMPLE_128
from dfrs.workloads.swf import COLUMNS, Swf

HOUR_S, DAY_S = 3_600, 86_400
DAY_START = 6
"""The first hour, counted from 1, of the day that the gamma distribution of arrivals describes: 05:00 to 06:00."""
LEAST_GROUPS = 10
"""Below, small and large sizes would overlap."""
SCALES = (0.01, 3.0)
"""Where beta_arr is looked for: from all jobs within minutes to gaps of days."""
ACCURACY = 1e-3
"""Largest relative error of the load, which times in whole seconds have."""

RUN = WHOLE_SAMPLE_128
"""With Table I."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticModel:
    """The model for one machine. Raises InputError naming field, value and rule."""

    jobs: int = 500
    procs: int = 320
    """Processors, a multiple of `unit`: at least 10 groups."""
    unit: int = 32
    """Processors in a group."""
    ps: float = 0.5
    """Probability of a small job."""
    load: float | None = 0.9
    """Offered load: sum of processors * run time / (procs * span of submissions). None: what `arrival_scale` gives."""
    arrival_scale: float = 0.5101
    """beta_arr where there is no `load`; the middle of the document's range."""
    pd: float = 0.0
    """Probability of a dedicated job."""
    pe: float = 0.0
    pr: float = 0.0
    """Probability that a job's time is extended; reduced."""
    pep: float = 0.0
    prp: float = 0.0
    """Probability that a job's processors are extended; reduced."""
    start_mean_s: float = 3_600.0
    """Mean time from submission to requested start."""
    amount_mean_s: float = 1_800.0
    """Mean amount of commands for time."""
    amount_mean_units: float = 1.0
    """Mean amount of commands for processors, in groups."""
    arrival_shape: float = 13.2303
    rush: float = 1.0225
    """alpha_arr and ARAR, which multiplies it."""
    day_shape: float = 15.1737
    day_scale: float = 0.9631
    """Gamma distribution of arrivals over the day, in hours."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not math.isfinite(value):
                raise InputError(f"{f.name} = {value}: must be finite")
        for name in ("ps", "pd", "pe", "pr", "pep", "prp"):
            self._check(name, 0.0 <= getattr(self, name) <= 1.0, "must be from 0 to 1")
        for name in ("arrival_scale", "arrival_shape", "rush", "day_shape", "day_scale"):
            self._check(name, getattr(self, name) > 0.0, "must be above 0")
        for name in ("start_mean_s", "amount_mean_s", "amount_mean_units"):
            self._check(name, 1.0 <= getattr(self, name) <= 1e9, "must be from 1 to 1e9")
        self._check("jobs", 2 <= self.jobs <= 1_000_000, "must be from 2 to 1000000")
        self._check("unit", self.unit >= 1, "must be at least 1")
        self._check("procs", self.procs % self.unit == 0, f"must be a multiple of unit = {self.unit}")
        least = LEAST_GROUPS * self.unit
        self._check("procs", least <= self.procs <= 2**24, f"must be from {LEAST_GROUPS} * unit = {least} to {2**24}")
        self._check("load", self.load is None or self.load > 0.0, "must be above 0")
        low, high = SCALES
        self._check("arrival_scale", low <= self.arrival_scale <= high, f"must be from {low:g} to {high:g}")
        self._check(
            "arrival_shape", 0.1 <= self.arrival_shape * self.rush <= 100.0, "times rush must be from 0.1 to 100"
        )
        if not hour_weights(self).min() > 1e-9:
            raise InputError(f"day_shape = {self.day_shape:g}: with this scale, some hour has no arrivals")

    def _check(self, name: str, good: bool, rule: str) -> None:
        if not good:
            raise InputError(f"{name} = {getattr(self, name):.10g}: {rule}")


def generate(model: ElasticModel, *, seed: int) -> Cwf:
    """A trace by NumPy's default generator; its header tells the parameters, beta_arr, and the load it offers.

    Sizes, run times, gaps, requested starts and each kind of command have random streams of their own: with other
    probabilities of dedicated jobs and commands the jobs are the same, with another load all but their times are.

    Raises InputError for a negative seed, or where the load cannot be reached.
    """
    if seed < 0:
        raise InputError(f"seed = {seed}: must be at least 0")
    streams = np.random.SeedSequence(seed).spawn(4 + len(CommandKind))
    size_rng, run_rng, gap_rng, start_rng, *command_rngs = map(np.random.default_rng, streams)
    size = sizes(model, size_rng)
    run_s = run_times(size, run_rng)
    phase, *shares = gap_rng.random(model.jobs)
    arrivals = Arrivals(model, phase=float(phase), shares=np.array(shares))
    work = float((size * run_s).sum()) / model.procs
    scale = model.arrival_scale if model.load is None else _solved(arrivals, work, model.load)
    submit_s = np.floor(arrivals.times(scale))
    load = work / (submit_s[-1] - submit_s[0]) if submit_s[-1] > submit_s[0] else math.inf
    if model.load is not None and not abs(load / model.load - 1.0) <= ACCURACY:
        raise InputError(f"load = {model.load:g}: cannot be reached with whole seconds; the nearest is {load:g}")
    chosen = start_rng.random(model.jobs) < model.pd
    start_s = np.where(chosen, submit_s + start_rng.geometric(1.0 / model.start_mean_s, model.jobs), np.nan)
    commands = _commands(model, submit_s, np.fmax(submit_s, start_s) + run_s - submit_s, command_rngs)
    notes = _header(model, scale, load, seed)
    return Cwf(jobs=_trace(model, submit_s, run_s, size, notes), requested_start_s=start_s, commands=commands)


def sizes(model: ElasticModel, rng: np.random.Generator) -> Ints:
    """(J,) processors."""
    groups = model.procs // model.unit
    small, u = rng.random((2, model.jobs))
    drawn = np.where(
        small < model.ps, 1.0 + u * (3 * groups / 10 - 1.0), 4 * groups / 10 + u * (groups - 4 * groups / 10)
    )
    return np.floor(drawn + 0.5).astype(np.int64) * model.unit


def run_times(size: Ints, rng: np.random.Generator) -> Floats:
    """(J,) whole seconds, at least 1, of jobs with `size` (J,) processors."""
    first = np.clip(RUN.slope * size + RUN.intercept, 0.0, 1.0)
    ln_run = np.full(len(size), np.inf)
    while len(again := np.flatnonzero(ln_run > LONGEST_LN_RUN)):
        one = rng.random(len(again)) < first[again]
        shape, scale = np.where(one, RUN.shape_1, RUN.shape_2), np.where(one, RUN.scale_1, RUN.scale_2)
        ln_run[again] = rng.gamma(shape, scale)
    return np.maximum(np.floor(np.exp(ln_run)), 1.0)


def hour_weights(model: ElasticModel) -> Floats:
    """(24,) intensity of each hour since midnight, 1 on average."""
    bounds = np.arange(DAY_START, DAY_START + 25) - 0.5
    weights = np.roll(np.diff(gammainc(model.day_shape, bounds / model.day_scale)), DAY_START - 1)
    return weights / weights.mean() if weights.mean() > 0.0 else weights


class Arrivals:
    """Times of arrival as a function of beta_arr: a larger one makes every gap longer."""

    def __init__(self, model: ElasticModel, *, phase: float, shares: Floats) -> None:
        """`phase`: which share of the first day's arrivals would come before the first, in [0, 1).

        `shares` (J - 1,): which quantile of the distribution of gaps each gap is, in [0, 1).
        """
        self._shape = model.arrival_shape * model.rush
        self._phase, self._shares = phase, shares
        self._day_points = np.concatenate([[0.0], np.cumsum(hour_weights(model) * HOUR_S)])

    def ln_gaps(self, scale: float) -> Floats:
        """(J - 1,) ln of the gaps in seconds of mean intensity, at most 13.

        To draw again what is above a limit gives the distribution given that it is not; its quantiles grow with the
        scale, while a gap that is drawn again as the scale grows would become shorter all at once.
        """
        below = gammainc(self._shape, LONGEST_LN_GAP / scale)
        return np.minimum(scale * gammaincinv(self._shape, self._shares * below), LONGEST_LN_GAP)

    def times(self, scale: float) -> Floats:
        """(J,) seconds since the first midnight, not decreasing. The first does not hang on the scale."""
        gaps = np.exp(self.ln_gaps(scale))
        points = self._phase * DAY_S + np.concatenate([[0.0], np.cumsum(gaps)])
        days, rest = np.divmod(points, DAY_S)
        return days * DAY_S + np.interp(rest, self._day_points, np.arange(25) * HOUR_S)


def _solved(arrivals: Arrivals, work: float, load: float) -> float:
    """beta_arr for which jobs of `work` seconds of the machine offer `load`."""
    from scipy.optimize import brentq  # noqa: PLC0415 - takes longer to import than most verbs run

    def excess(ln_scale: float) -> float:
        times = arrivals.times(math.exp(ln_scale))
        return math.log(work / float(times[-1] - times[0]) / load)

    low, high = map(math.log, SCALES)
    if not excess(high) <= 0.0 <= excess(low):
        least, most = load * math.exp(excess(high)), load * math.exp(excess(low))
        raise InputError(f"load = {load:g}: must be from {least:.4g} to {most:.4g} for these jobs")
    return math.exp(float(brentq(excess, low, high, xtol=1e-12)))  # pyright: ignore[reportArgumentType]


def _commands(
    model: ElasticModel, submit_s: Floats, window_s: Floats, rngs: list[np.random.Generator]
) -> ElasticCommands:
    """Each within `window_s` (J,) from its job's submission."""
    probability = {
        CommandKind.ET: model.pe,
        CommandKind.RT: model.pr,
        CommandKind.EP: model.pep,
        CommandKind.RP: model.prp,
    }
    columns: list[tuple[Floats, Ints, Ints, Floats]] = []
    for kind, rng in zip(CommandKind, rngs, strict=True):
        chosen: Bools = rng.random(model.jobs) < probability[kind]
        time_s = submit_s + np.floor(rng.random(model.jobs) * (window_s + 1.0))
        mean, unit = (model.amount_mean_s, 1) if kind in TIME_KINDS else (model.amount_mean_units, model.unit)
        amount = unit * rng.geometric(1.0 / mean, model.jobs).astype(np.float64)
        ids = np.flatnonzero(chosen) + 1
        columns.append((time_s[chosen], ids, np.full(len(ids), int(kind)), amount[chosen]))
    time_s, ids, kinds, amount = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((kinds, ids, time_s))
    return ElasticCommands(time_s=time_s[order], job_id=ids[order], kind=kinds[order], amount=amount[order])


def _header(model: ElasticModel, scale: float, load: float, seed: int) -> tuple[str, ...]:
    parameters = " ".join(f"{f.name}={getattr(model, f.name)}" for f in fields(model))
    return (
        " Version: 2.2",
        f" MaxJobs: {model.jobs}",
        f" MaxRecords: {model.jobs}",
        f" MaxProcs: {model.procs}",
        f" AllocationUnit: {model.unit}",
        f" MaxRuntime: {math.floor(math.exp(LONGEST_LN_RUN))}",
        f" BetaArr: {scale!r}",
        f" OfferedLoad: {load:.6f}",
        " Note: Cloud Workload Format: requested start, request and amount in fields 19 to 21",
        f" Note: elastic workload model, NumPy, seed={seed} {parameters}",
    )


def _trace(model: ElasticModel, submit_s: Floats, run_s: Floats, size: Ints, comments: tuple[str, ...]) -> Swf:
    unknown = np.full(model.jobs, -1)
    known = {
        "job_id": np.arange(1, model.jobs + 1),
        "submit_s": submit_s,
        "run_s": run_s,
        "processors": size,
        "requested_processors": size,
        "requested_s": run_s,
        "status": np.ones(model.jobs),
    }
    return Swf(**{label: known.get(label, unknown) for label in COLUMNS}, comments=comments, name="elastic")  # type: ignore[arg-type]
