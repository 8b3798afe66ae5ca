"""Base run against migration run, as in [Atif2011] section 8: times, throughput, and what migrations brought."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dfrs.experiments.farm_runs import Analysis, Move, PreparedStream, done_by, measured, moves_of, placed, simulation
from dfrs.model.instance import Floats
from dfrs.model.run import Run
from dfrs.policies.heterogeneous.rules import letter
from dfrs.runs.metrics.statistics import mean_interval
from dfrs.simulator.simulation import Watch
from dfrs.workloads.programs import Published

METRICS = {"wait_s": "average wait, s", "turnaround_s": "average turnaround, s", "total_s": "total time, s"}
_GAIN = re.compile(r"predicted gain (-?\d+) s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FarmOutcome:
    """One run under one policy."""

    policy: str
    seed: int
    run: Run
    metrics: Mapping[str, float]
    moves: Sequence[Move]
    placed: Mapping[int, tuple[float, float, str]]
    """Of each job, by index, its start, its end, and where it was in turn."""
    analyses: Sequence[Analysis] = field(default_factory=list[Analysis])
    """What ARRIVE-F looked at; empty where that was not asked for."""

    @property
    def decisions(self) -> int:
        """How many plans of migrations were carried out."""
        return len({move.time_s for move in self.moves})


def run_stream(
    made: PreparedStream, policy: str, seed: int, *, explain: bool = False, watch: Watch | None = None
) -> FarmOutcome:
    """Simulate the stream under the policy."""
    heard: list[Analysis] = []
    run = simulation(made, policy, heard if explain else None).run(watch)
    return FarmOutcome(
        policy=policy,
        seed=seed,
        run=run,
        metrics=measured(run),
        moves=moves_of(run, made.farm),
        placed=placed(run, made.farm),
        analyses=heard,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A policy against the base run on the same seeds; (S,) values of each seed."""

    base: str
    policy: str
    jobs: int
    done: Floats
    """Jobs that the base run had done when the other run was done ([Atif2011]: Jobs@mig.run)."""
    saved: Mapping[str, Floats]
    """Of each of METRICS, base less other, in seconds."""
    of_base: Mapping[str, Floats]
    """The same in percent of the base run ..."""
    of_other: Mapping[str, Floats]
    """... and of the other run: [Atif2011] uses both."""

    @property
    def throughput(self) -> Floats:
        """(S,) percent more jobs in the time of the other run."""
        return throughput(self.jobs, self.done)


def throughput(jobs: int, done: Floats) -> Floats:
    """(S,) [Atif2011]'s relative throughput, in percent above that of the base run."""
    return 100.0 * (jobs / np.maximum(done, 1.0) - 1.0)


def percent(saved: Floats, of: Floats) -> Floats:
    """`saved` in percent of `of`; 0 of nothing."""
    return 100.0 * np.divide(saved, of, out=np.zeros_like(saved), where=of > 0)


def compare(outcomes: Mapping[str, Sequence[FarmOutcome]], base: str, policy: str) -> Pair:
    """The runs of `policy` against those of `base`, seed by seed."""
    pairs = list(zip(outcomes[base], outcomes[policy], strict=True))
    old = {key: np.array([a.metrics[key] for a, _ in pairs]) for key in METRICS}
    new = {key: np.array([b.metrics[key] for _, b in pairs]) for key in METRICS}
    return Pair(
        base=base,
        policy=policy,
        jobs=len(pairs[0][0].run.workload),
        done=np.array([float(done_by(a.run.finish_s, b.run.finish_s.max())) for a, b in pairs]),
        saved={key: old[key] - new[key] for key in METRICS},
        of_base={key: percent(old[key] - new[key], old[key]) for key in METRICS},
        of_other={key: percent(old[key] - new[key], new[key]) for key in METRICS},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A sentence of a document against what was measured."""

    claim: str
    published: str
    measured: str
    holds: bool


def verdicts(pair: Pair, published: Published) -> list[Verdict]:
    """Whether what was published as better is better here, by the means over seeds; nothing is said of by how much."""
    theirs = {"wait_s": published.wait_s, "turnaround_s": published.turnaround_s, "total_s": published.total_s}
    gain = float(pair.throughput.mean())
    found = [
        Verdict(
            claim="throughput is higher",
            published=f"{published.throughput_percent:+.0f} %",
            measured=f"{gain:+.1f} %",
            holds=gain > 0.0,
        )
    ]
    for key, title in METRICS.items():
        old, new = theirs[key]
        ours = float(pair.saved[key].mean())
        found.append(
            Verdict(
                claim=f"{title.removesuffix(', s')} is lower",
                published=f"{100.0 * (new / old - 1.0):+.1f} % of the base run",
                measured=f"{-float(pair.of_base[key].mean()):+.1f} %",
                holds=ours > 0.0,
            )
        )
    return found


def moved_lines(base: FarmOutcome, other: FarmOutcome, names: Sequence[str]) -> list[dict[str, object]]:
    """What became of each job that was moved: where and how long it ran in both runs, and what was predicted."""
    estimate_s = other.run.workload.estimate_s
    lines: list[dict[str, object]] = []
    for move in other.moves:
        old, new = base.placed[move.job], other.placed[move.job]
        gain = _GAIN.search(move.why)
        lines.append(
            {
                "time_s": move.time_s,
                "job": int(other.run.workload.job_id[move.job]),
                "name": names[move.job],
                "processes": int(other.run.workload.tasks[move.job]),
                "from": move.source,
                "to": move.target,
                "predicted_gain_s": None if gain is None else float(gain[1]),
                "expected_s": float(estimate_s[move.job]),
                "base_where": old[2],
                "base_s": old[1] - old[0],
                "where": new[2],
                "run_s": new[1] - new[0],
                "saved_s": old[1] - old[0] - (new[1] - new[0]),
                "why": move.why,
            }
        )
    return lines


def interval(values: Floats, *seed: str) -> dict[str, object]:
    """Mean with its 95 % interval where there are enough seeds, as JSON has it."""
    found = mean_interval(values, seed="/".join(seed)).shown
    return {"mean": found.mean, "low": found.low, "high": found.high, "seeds": found.count}


def document(
    outcomes: Mapping[str, Sequence[FarmOutcome]],
    pairs: Sequence[Pair],
    published: Published | None,
    made: PreparedStream,
    *,
    explain: bool = False,
) -> dict[str, object]:
    """All of a comparison as plain data for JSON."""
    base = next(iter(outcomes.values()))
    return {
        "workload": made.workload.name,
        "jobs": len(made.workload),
        "nodes": made.farm.nodes,
        "runs": [
            {
                "policy": name,
                "seeds": [each.seed for each in runs],
                **{key: interval(np.array([each.metrics[key] for each in runs]), name, key) for key in METRICS},
                "migrations": interval(np.array([float(each.decisions) for each in runs]), name, "migrations"),
            }
            for name, runs in outcomes.items()
        ],
        "comparisons": [
            {
                "base": pair.base,
                "policy": pair.policy,
                "jobs_done_by_base": interval(pair.done, pair.policy, "done"),
                "throughput_percent": interval(pair.throughput, pair.policy, "throughput"),
                **{f"{key}_saved_percent_of_base": interval(pair.of_base[key], pair.policy, key) for key in METRICS},
                **{f"{key}_saved_percent_of_run": interval(pair.of_other[key], pair.policy, key) for key in METRICS},
                "verdicts": []
                if published is None
                else [
                    {"claim": v.claim, "published": v.published, "measured": v.measured, "holds": v.holds}
                    for v in verdicts(pair, published)
                ],
            }
            for pair in pairs
        ],
        "migrations": [
            {"policy": name, "seed": each.seed, "moved": moved_lines(base[k], each, made.names)}
            for name, runs in outcomes.items()
            for k, each in enumerate(runs)
            if each.moves
        ],
        **({"considered": _considered(outcomes, made)} if explain else {}),
    }


def _considered(outcomes: Mapping[str, Sequence[FarmOutcome]], made: PreparedStream) -> list[dict[str, object]]:
    names = tuple(cluster.name for cluster in made.farm.partitions)
    return [
        {
            "policy": each.policy,
            "seed": each.seed,
            "time_s": analysis.time_s,
            "scenario": option.scenario.name.lower(),
            "jobs": list(option.jobs),
            "from": letter(option.source, names),
            "to": letter(option.target, names),
            "gain_s": None if np.isnan(option.gain_s) else option.gain_s,
            "threshold_s": None if np.isnan(option.threshold_s) else option.threshold_s,
            "chosen": option.chosen,
            "why_not": option.why_not,
        }
        for runs in outcomes.values()
        for each in runs
        for analysis in each.analyses
        for option in analysis.considered
    ]
