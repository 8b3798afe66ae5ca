"""The workload model of Lublin and Feitelson: sizes, run times and arrivals of jobs on a parallel machine.

Published in "The workload on parallel supercomputers", J. Parallel Distrib. Comput. 63 (2003); the constants and the
order of random draws are those of the authors' program, so with the C library's generator (`rng="drand48"`) it gives
that program's output job by job. [Stillwell2010] section 5.3.2 makes its 100 synthetic traces with it.

Two kinds of jobs, batch and interactive, arrive independently, each with a daily cycle; or there is one kind, with
parameters fitted to the whole sample. The clock starts at midnight.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import numpy as np

from dfrs.model.errors import InputError
from dfrs.workloads.swf import COLUMNS, Swf

Rng = Literal["drand48", "numpy"]
Uniform = Callable[[], float]

LONGEST_LN_RUN = 12.0
"""Run times of more than e^12 s (1.88 days) are drawn again."""
LONGEST_LN_GAP = 13.0
"""So are gaps of more than e^13 s (5.12 days) of a bucket of mean intensity."""
BUCKETS = 48
"""Half hours of a day."""
BUCKET_S = 1_800
DAY_START = 11
"""The first bucket, counted from 1, of the day that the gamma distribution of arrivals describes: 05:00 to 05:30."""

INTERACTIVE, BATCH = 0, 1
"""Codes of the two kinds in field 15 (queue)."""

_ITERATIONS, _ACCURACY = 1_000, 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomStream:
    """Parameters of one stream of jobs, for one size of machine. Raises InputError naming field, value and rule."""

    serial: float
    """Probability of one processor."""
    power_of_2: float
    """Probability of a power of two of them, of which there are more than one."""
    low: float
    medium: float
    high: float
    stage: float
    """log2 of the size of a parallel job is uniform on [low, medium] with this probability, else on [medium, high]."""
    shape_1: float
    scale_1: float
    shape_2: float
    scale_2: float
    """ln of the run time in seconds is from one of two gamma distributions (means shape * scale), …"""
    slope: float
    intercept: float
    """… the first with probability slope * size + intercept, clipped to [0, 1]."""
    gap_shape: float
    gap_scale: float
    rush: float
    """ln of the gap between arrivals, in seconds of mean intensity, is gamma of shape gap_shape * rush."""
    day_shape: float
    day_scale: float
    """Gamma distribution of arrivals over the day, in half hours."""

    def __post_init__(self) -> None:
        for f in fields(self):
            if not math.isfinite(getattr(self, f.name)):
                raise InputError(f"{f.name} = {getattr(self, f.name)}: must be finite")
        for name in ("serial", "power_of_2", "stage"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} = {getattr(self, name):g}: must be from 0 to 1")
        if self.serial + self.power_of_2 > 1.0:
            raise InputError(f"power_of_2 = {self.power_of_2:g}: must be at most 1 - serial")
        if not 0.0 <= self.low <= self.medium <= self.high:
            raise InputError(f"medium = {self.medium:g}: must be from low = {self.low:g} to high = {self.high:g}")
        positive = [f"{part}_{k}" for part in ("shape", "scale") for k in (1, 2)]
        for name in (*positive, "gap_shape", "gap_scale", "rush", "day_shape", "day_scale"):
            if getattr(self, name) <= 0.0:
                raise InputError(f"{name} = {getattr(self, name):g}: must be above 0")
        means = {
            "shape_1 * scale_1": (self.shape_1 * self.scale_1, LONGEST_LN_RUN),
            "shape_2 * scale_2": (self.shape_2 * self.scale_2, LONGEST_LN_RUN),
            "gap_shape * rush * gap_scale": (self.gap_shape * self.rush * self.gap_scale, LONGEST_LN_GAP),
        }
        # What is above the limit is drawn again: this must end soon.
        for name, (mean, limit) in means.items():
            if mean > limit:
                raise InputError(f"{name} = {mean:g}: must be at most {limit:g}")


BATCH_128 = RandomStream(
    serial=0.2927,
    power_of_2=0.6686,
    low=1.2,
    medium=5.0,
    high=7.0,
    stage=0.875,
    shape_1=6.57,
    scale_1=0.823,
    shape_2=639.1,
    scale_2=0.0156,
    slope=-0.003,
    intercept=0.6986,
    gap_shape=6.0415,
    gap_scale=0.8531,
    rush=1.0519,
    day_shape=6.1271,
    day_scale=5.2740,
)
INTERACTIVE_128 = RandomStream(
    serial=0.1541,
    power_of_2=0.625,
    low=1.0,
    medium=3.0,
    high=5.5,
    stage=0.705,
    shape_1=3.8351,
    scale_1=0.6605,
    shape_2=7.073,
    scale_2=0.6856,
    slope=-0.0118,
    intercept=0.9156,
    gap_shape=6.5510,
    gap_scale=0.6621,
    rush=0.9797,
    day_shape=8.9186,
    day_scale=3.6680,
)
WHOLE_SAMPLE_128 = RandomStream(
    serial=0.244,
    power_of_2=0.576,
    low=0.8,
    medium=4.5,
    high=7.0,
    stage=0.86,
    shape_1=4.2,
    scale_1=0.94,
    shape_2=312.0,
    scale_2=0.03,
    slope=-0.0054,
    intercept=0.78,
    gap_shape=10.2303,
    gap_scale=0.4871,
    rush=1.0225,
    day_shape=8.1737,
    day_scale=3.9631,
)
"""The published parameters, for a machine of 128 nodes."""


def for_machine(stream: RandomStream, nodes: int) -> RandomStream:
    """`stream`, given for 128 nodes, with the sizes of a machine of `nodes`.

    The largest and the middle size move by log2(nodes / 128), so that both keep the distance from the machine's size
    that the authors advise; the smallest stays. On small machines all are kept within it.
    """
    shift = math.log2(nodes) - 7.0
    high = max(stream.high + shift, min(1.0, math.log2(nodes)))
    low = min(stream.low, high)
    return replace(stream, low=low, medium=min(max(stream.medium + shift, low), high), high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lublin:
    """The model for one machine. Raises InputError naming field, value and rule."""

    jobs: int = 1_000
    nodes: int = 128
    streams: tuple[RandomStream, ...] = (INTERACTIVE_128, BATCH_128)
    """Interactive and batch, or one alone."""

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= 10_000_000:
            raise InputError(f"jobs = {self.jobs}: must be from 1 to 10000000")
        if not 1 <= self.nodes <= 2**24:
            raise InputError(f"nodes = {self.nodes}: must be from 1 to {2**24}")
        if len(self.streams) not in {1, 2}:
            raise InputError(f"streams: {len(self.streams)} of them: must be interactive and batch, or one alone")
        for stream in self.streams:
            if stream.high > math.log2(self.nodes):
                raise InputError(f"high = {stream.high:g}: must be at most log2(nodes) = {math.log2(self.nodes):g}")
            if min(_weights(stream)) <= 0.0:
                raise InputError(f"day_shape = {stream.day_shape:g}: with this scale, some half hour has no arrivals")

    @classmethod
    def of(cls, *, jobs: int = 1_000, nodes: int = 128, typed: bool = True) -> "Lublin":
        """The published parameters, for `nodes`; not `typed`: those of the whole sample."""
        streams = (INTERACTIVE_128, BATCH_128) if typed else (WHOLE_SAMPLE_128,)
        return cls(jobs=jobs, nodes=nodes, streams=tuple(for_machine(s, max(nodes, 1)) for s in streams))


def generate(model: Lublin, *, seed: int, rng: Rng = "drand48") -> Swf:
    """A trace: number, submission, run time, processors, and in field 15 the kind of job; no estimates, no memory.

    `rng` is the C library's `drand48` (only the low 32 bits of `seed` count) or NumPy's default generator.
    Raises InputError for a negative seed or an unknown generator.
    """
    if seed < 0:
        raise InputError(f"seed = {seed}: must be at least 0")
    if rng not in get_args(Rng):
        raise InputError(f'rng = "{rng}": must be one of {", ".join(get_args(Rng))}')
    uniform = _drand48(seed) if rng == "drand48" else _numpy(seed)
    arrivals = {code: _Arrivals(model.streams[code % len(model.streams)], uniform) for code in (BATCH, INTERACTIVE)}
    # Both draw their first arrival, batch first, even where one of them is then left out.
    for code in (BATCH, INTERACTIVE):
        arrivals[code].advance()
    if len(model.streams) == 1:
        arrivals[BATCH].clock_s = math.inf
    largest = math.floor(math.log2(model.nodes))
    rows: list[tuple[float, int, int, int]] = []
    for _ in range(model.jobs):
        code = BATCH if arrivals[BATCH].clock_s < arrivals[INTERACTIVE].clock_s else INTERACTIVE
        submit_s = arrivals[code].clock_s
        arrivals[code].advance()
        stream = arrivals[code].stream
        size = _size(stream, largest, uniform)
        rows.append((submit_s, _run_s(stream, size, uniform), size, code))
    return _trace(model, np.array(rows).T, f"{rng}, seed {seed}")


def _trace(model: Lublin, columns: np.ndarray, source: str) -> Swf:
    unknown = np.full(model.jobs, -1)
    submit_s, run_s, processors, queue = columns
    known = {
        "job_id": np.arange(1, model.jobs + 1),
        "submit_s": submit_s,
        "run_s": run_s,
        "processors": processors,
        "status": np.ones(model.jobs),
        "queue": queue,
    }
    kinds = "interactive and batch jobs (queue 0 and 1)" if len(model.streams) == 2 else "one kind of jobs"
    comments = (
        " Version: 2.2",
        " Acknowledge: Uri Lublin and Dror Feitelson (the model)",
        f" MaxJobs: {model.jobs}",
        f" MaxRecords: {model.jobs}",
        f" MaxNodes: {model.nodes}",
        f" MaxProcs: {model.nodes}",
        f" MaxRuntime: {math.floor(math.exp(LONGEST_LN_RUN))}",
        f" Note: Lublin-Feitelson model, {kinds}, {source}",
    )
    return Swf(**{label: known.get(label, unknown) for label in COLUMNS}, comments=comments, name="lublin")  # type: ignore[arg-type]


def _drand48(seed: int) -> Uniform:
    """POSIX `drand48` after `srand48(seed)`."""
    state = ((seed & 0xFFFFFFFF) << 16) | 0x330E

    def uniform() -> float:
        nonlocal state
        state = (0x5DEECE66D * state + 0xB) & 0xFFFFFFFFFFFF
        return state * 2.0**-48

    return uniform


def _numpy(seed: int) -> Uniform:
    rng = np.random.default_rng(seed)

    def blocks() -> Iterator[float]:
        while True:
            yield from rng.random(4_096).tolist()

    return blocks().__next__


def _ln(u: float) -> float:
    return math.log(u) if u > 0.0 else -math.inf


def _gamma(shape: float, scale: float, uniform: Uniform) -> float:
    """A gamma variate of mean shape * scale: exponentials for the whole part of `shape`, Johnk's way for the rest."""
    whole = math.floor(shape)
    value = 0.0
    if whole:
        total = 0.0
        for _ in range(whole):
            total += _ln(uniform())
        value = -scale * total
    rest = shape - whole
    if rest > 0.0:
        share = _beta(rest, 1.0 - rest, uniform)
        value += scale * share * -_ln(uniform())
    return value


def _beta(a: float, b: float, uniform: Uniform) -> float:
    while True:
        p = math.pow(uniform(), 1.0 / a)
        q = math.pow(uniform(), 1.0 / b)
        if 0.0 < p + q <= 1.0:
            return p / (p + q)


def _size(stream: RandomStream, largest: int, uniform: Uniform) -> int:
    """Processors; `largest` is log2 of the machine's largest power of two, which rounding may not pass."""
    u = uniform()
    if u <= stream.serial:
        return 1
    low, high = (stream.low, stream.medium) if uniform() <= stream.stage else (stream.medium, stream.high)
    exponent = low + uniform() * (high - low)
    if u <= stream.serial + stream.power_of_2:
        exponent = min(math.floor(exponent + 0.5), largest)
    return math.floor(math.pow(2.0, exponent) + 0.5)


def _run_s(stream: RandomStream, size: int, uniform: Uniform) -> int:
    p = min(max(stream.slope * size + stream.intercept, 0.0), 1.0)
    while True:
        first = uniform() <= p
        shape, scale = (stream.shape_1, stream.scale_1) if first else (stream.shape_2, stream.scale_2)
        ln_run = _gamma(shape, scale, uniform)
        if ln_run <= LONGEST_LN_RUN:
            return math.floor(math.exp(ln_run))


class _Arrivals:
    """Arrivals of one stream: points, of which a half hour of mean intensity has one, are spent along the day."""

    def __init__(self, stream: RandomStream, uniform: Uniform) -> None:
        self.stream = stream
        self.clock_s: float = 0.0
        self._uniform = uniform
        self._weights = _weights(stream)
        self._bucket = 0
        self._points = 0.0
        self._share = 0.0

    def advance(self) -> None:
        """Move the clock to the next arrival, a whole second; the fraction stays in the share of the bucket."""
        stream = self.stream
        while True:
            ln_gap = _gamma(stream.gap_shape * stream.rush, stream.gap_scale, self._uniform)
            if ln_gap <= LONGEST_LN_GAP:
                break
        self._points += math.exp(ln_gap) / BUCKET_S
        gap_s = 0.0
        while self._points > self._weights[self._bucket]:
            self._points -= self._weights[self._bucket]
            self._bucket = (self._bucket + 1) % BUCKETS
            gap_s += BUCKET_S
        share = self._points / self._weights[self._bucket]
        gap_s += BUCKET_S * (share - self._share)
        self._share = share
        self.clock_s = math.floor(self.clock_s + gap_s)


def _weights(stream: RandomStream) -> list[float]:
    """(48,) intensity of each half hour since midnight, 1 on average."""
    weights = [0.0] * BUCKETS
    for i in range(DAY_START, DAY_START + BUCKETS):
        after = _gamma_cdf(i + 0.5, stream.day_shape, stream.day_scale)
        weights[(i - 1) % BUCKETS] = after - _gamma_cdf(i - 0.5, stream.day_shape, stream.day_scale)
    mean = sum(weights) / BUCKETS
    return [w / mean for w in weights] if mean > 0.0 else weights


def _gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Probability of at most x: incomplete gamma function by its series, or where that is slow by its fraction."""
    z = x / scale
    front = math.exp(-z + shape * math.log(z) - math.lgamma(shape))
    if z < shape + 1.0:
        term = total = 1.0 / shape
        for n in range(1, _ITERATIONS):
            term *= z / (shape + n)
            total += term
            if abs(term) < abs(total) * _ACCURACY:
                break
        return front * total
    b = z + 1.0 - shape
    c = math.inf
    d = 1.0 / b
    fraction = d
    for n in range(1, _ITERATIONS):
        a = -n * (n - shape)
        b += 2.0
        d = 1.0 / (a * d + b)
        c = b + a / c
        fraction *= c * d
        if abs(c * d - 1.0) < _ACCURACY:
            break
    return 1.0 - front * fraction
