"""What a job comes after, as users write it: `3`, `3:any`, `1-5:failed`, or like Slurm `afterok:3:4`."""

from collections.abc import Sequence

from dfrs.cli.live.selecting import parse_range
from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError

MOST = 1000
"""Jobs of one kind that a job may come after."""
KINDS = {"ok": "after", "failed": "after_failed", "any": "after_any", "start": "after_start"}
"""Fields of a request, by the word for what must have become of the other job."""
SLURM = {"afterok": "ok", "afternotok": "failed", "afterany": "any", "after": "start"}
"""The same words as Slurm has them."""


def parse_after(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Jobs by the field of a request. Raises InputError."""
    found: dict[str, list[int]] = {field: [] for field in KINDS.values()}
    for word in words:
        for part in word.split(","):
            kind, ranges = _parse(word, part)
            for jobs in ranges:
                if len(jobs) > MOST:
                    raise InputError(f"--after: {quoted(word)}: must be at most {MOST} jobs")
                found[KINDS[kind]] += jobs
    return {field: tuple(dict.fromkeys(jobs)) for field, jobs in found.items()}


def _parse(word: str, part: str) -> tuple[str, list[range]]:
    first, *rest = part.split(":")
    if first in SLURM:
        kind, texts = SLURM[first], rest
    else:
        kind, texts = ":".join(rest) or "ok", [first]
    ranges = [jobs for jobs in map(parse_range, texts) if jobs is not None]
    if kind not in KINDS or not ranges or len(ranges) < len(texts):
        rule = "must be a job or a range, alone or with :ok, :failed, :any or :start, as 3:any, or afterok:3:4"
        raise InputError(f"--after: {quoted(word)}: {rule}")
    return kind, ranges
