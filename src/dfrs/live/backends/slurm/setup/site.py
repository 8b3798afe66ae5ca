"""A site's files, and what is to be made of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dfrs.live.backends.slurm.setup.conf_file import Partition, SlurmConf, read_conf
from dfrs.live.backends.slurm.setup.edits import by_file, edited, restored
from dfrs.live.backends.slurm.setup.requirements import CGROUP, Change, review
from dfrs.live.backends.slurm.setup.scripts import (
    ONE_PARTITION,
    OURS,
    SITE,
    SOURCE,
    check_scripts,
    is_made,
    load_line,
    made_for,
    other_partition,
    read_if_there,
    site_script,
    steering_users,
)
from dfrs.live.doctor.findings import Finding
from dfrs.model.errors import InputError
from dfrs.model.text import visible


class Site:
    """Slurm's files, beside its slurm.conf, and the partition for which dfrs decides."""

    def __init__(self, path: Path, partition: str | None = None, users: Iterable[str] = ()) -> None:
        self.conf: SlurmConf = read_conf(path.absolute())
        self.folder = path.absolute().parent
        self.cgroup = read_conf(self.folder / CGROUP) if (self.folder / CGROUP).exists() else None
        self.partition: Partition = self.conf.managed(partition)
        self.load = load_line(self.folder, self.partition.name, steering_users(self.conf, users))
        self._review = review(self.conf, self.cgroup, self.partition)

    @property
    def findings(self) -> list[Finding]:
        """All that was looked at."""
        return [*self._review.findings, *check_scripts(self.folder, self.load, self.partition.name)]

    @property
    def left(self) -> list[Finding]:
        """Those that no change of a file here mends: the site has to choose."""
        scripts = check_scripts(self.folder, self.load, self.partition.name)
        names = {path.name for path in self.files()}
        return [*self._review.left, *(each for each in scripts if each.verdict != "ok" and each.check not in names)]

    @property
    def changes(self) -> Sequence[Change]:
        """Lines that have to change."""
        return self._review.changes

    def refuse_another(self) -> None:
        """Raise InputError where dfrs decides for another partition here: without its hold Slurm would start that one's
        jobs, too.
        """
        other = other_partition(read_if_there(self.folder / SITE) or "", self.partition.name)
        if other is not None:
            raise InputError(f"{self.folder / SITE}: is for partition {other}: {ONE_PARTITION}")

    def files(self) -> Mapping[Path, str]:
        """The new text of each file that has to change. Raises InputError."""
        made = {path: edited(read_if_there(path) or "", several) for path, several in by_file(self.changes).items()}
        if read_if_there(self.folder / OURS) != SOURCE.read_text():
            made[self.folder / OURS] = SOURCE.read_text()
        script, there = site_script(self.load), read_if_there(self.folder / SITE)
        if there is None or (is_made(there) and there != script):
            made[self.folder / SITE] = script
        return made


def installed_for(path: Path, named: str | None) -> str:
    """The name of the partition for which the files beside this slurm.conf were changed, which may be `named`.

    Raises InputError if they were for another, or do not say for which one.
    """
    conf, script = read_conf(path.absolute()), path.absolute().parent / SITE
    made = made_for(read_if_there(script) or "")
    if made is None:
        if named is None and len(conf.partitions()) > 1:
            raise InputError(f"{script}: does not say for which partition dfrs decided: name it with --partition")
        return conf.managed(named).name
    if named is not None and named != made:
        raise InputError(f"{script}: is for partition {made}, not for {visible(named)}")
    return made


def undone(path: Path) -> Mapping[Path, str | None]:
    """The text that each file had before; None for one that is to be removed. Raises InputError."""
    conf, folder = read_conf(path.absolute()), path.absolute().parent
    site = read_if_there(folder / SITE)
    if site is not None and not is_made(site) and OURS in site:
        raise InputError(f"{folder / SITE}: calls {OURS}: take these lines out of it first")
    found: dict[Path, str | None] = {}
    for file in [*_files(conf), folder / CGROUP]:
        text = read_if_there(file)
        if text is not None and restored(text) != text:
            found[file] = restored(text) if restored(text).strip() else None
    if site is not None and is_made(site):
        found[folder / SITE] = None
    if (folder / OURS).exists():
        found[folder / OURS] = None
    return found


def _files(conf: SlurmConf) -> Iterator[Path]:
    yield from dict.fromkeys([conf.path, *(line.file for line in conf.lines)])
