"""What became of jobs, judged by what they wrote themselves."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dfrs.live.protocol.resources import ENDED, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Jobs of which something must not be, by what it is, and seconds until all was well."""

    lost: int = 0
    """Accepted, and not done, or done without having run to the end."""
    twice: int = 0
    """Began while they ran, or were submitted once and there twice."""
    again: int = 0
    """Began once more after they had ended."""
    stuck: int = 0
    """Not ended when patience was, or with something of them left on a node."""
    anew: int = 0
    """Began once more after they were killed with their node: that is how it must be."""
    well_s: float = 0.0
    notes: tuple[str, ...] = field(default=())
    """Each of these jobs, in words."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.twice or self.again or self.stuck)


def judge(accepted: Collection[int], states: Mapping[int, JobState], said: Mapping[int, Sequence[str]]) -> Verdict:
    """`accepted` by the API; `states` of all jobs that the cluster knows; the words that each job `said`, in order."""
    counts = dict.fromkeys(("lost", "twice", "again", "stuck", "anew"), 0)
    notes = []
    for job in sorted({*accepted, *states, *said}):
        state, words = states.get(job), said.get(job, ())
        wrong = list(_wrong(state, words))
        for each in wrong:
            counts[each] += 1
        if wrong and wrong != ["anew"]:
            notes.append(f"job {job}: {', '.join(wrong)}: {state or 'unknown'}, said {' '.join(words) or 'nothing'}")
    return Verdict(**counts, notes=tuple(notes))


def _wrong(state: JobState | None, words: Sequence[str]) -> Iterable[str]:
    if state is not None and state not in ENDED:
        yield "stuck"
    elif state != JobState.DONE or "end" not in words:
        yield "lost"
    if "twice" in words:
        yield "twice"
    if "end" in words and "begin" in words[words.index("end") :]:
        yield "again"
    elif words.count("begin") > 1 and "twice" not in words:
        yield "anew"


def said_in(directory: Path) -> dict[int, list[str]]:
    """What jobs of `tests.live_pair.shell_job` wrote there."""
    return {
        int(path.name.split(".")[0]): [line.split()[0] for line in path.read_text().splitlines()]
        for path in directory.glob("*.notes")
    }
