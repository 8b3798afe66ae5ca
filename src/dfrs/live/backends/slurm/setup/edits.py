"""Changes of a configuration file that can be taken back, also after others have edited it.

A line that is replaced stays, behind `#dfrs-was#`; a line that is added ends in `# dfrs`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from dfrs.live.backends.slurm.setup.requirements import Change

WAS = "#dfrs-was#"
ADDED = "  # dfrs"


def edited(text: str, changes: Sequence[Change]) -> str:
    """A file's text with these changes of it."""
    lines = text.split("\n")
    new: dict[int, list[str]] = {}
    last: list[str] = []
    for line, several in _by_line(changes).items():
        change = several[0]
        if line is None or change.line is None:
            last += [each.text + ADDED for each in several]
            continue
        values = {key: value for each in several for key, value in each.values.items()}
        new[change.line.last] = [change.line.changed(values) + ADDED]
        for number in range(change.line.first, change.line.last + 1):
            lines[number - 1] = WAS + lines[number - 1]
    made = [part for number, line in enumerate(lines, 1) for part in (line, *new.get(number, ()))]
    while made and not made[-1]:
        made.pop()
    return "\n".join([*made, *last]) + "\n"


def _by_line(changes: Sequence[Change]) -> Mapping[int | None, list[Change]]:
    found: dict[int | None, list[Change]] = defaultdict(list)
    for change in changes:
        found[None if change.line is None else change.line.first].append(change)
    return found


def restored(text: str) -> str:
    """A file's text without what `edited` has made of it."""
    kept = [line for line in text.split("\n") if not line.endswith(ADDED)]
    return "\n".join(line.removeprefix(WAS) for line in kept)


def by_file(changes: Sequence[Change]) -> Mapping[Path, list[Change]]:
    """Those of each file."""
    found: dict[Path, list[Change]] = defaultdict(list)
    for change in changes:
        found[change.file].append(change)
    return found
