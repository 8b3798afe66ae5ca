"""What Slurm runs when a job is submitted or changed: `job_submit.lua`, the site's, which calls `dfrs.lua`, ours."""

import pwd
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dfrs.live.backends.slurm.setup.conf_file import SlurmConf
from dfrs.live.doctor.findings import Finding, ok, wrong
from dfrs.model.errors import InputError
from dfrs.model.text import visible

OURS = "dfrs.lua"
SITE = "job_submit.lua"
SOURCE = Path(__file__).with_name(OURS)
MADE = "-- Made by dfrs slurm install."
ONE_PARTITION = "dfrs decides for one; for this one instead: first dfrs slurm uninstall"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PARTITION = re.compile(r'{partition = "([^"]*)"')
_SCRIPT = """{made}
{load}

function slurm_job_submit(job, partitions, user)
  return {submit}
end

function slurm_job_modify(job, record, partitions, user)
  return {modify}
end

return slurm.SUCCESS
"""
_SUBMIT, _MODIFY = "dfrs.submit(job, partitions)", "dfrs.modify(job, record, user)"


def load_line(folder: Path, partition: str, users: Sequence[int]) -> str:
    """The line that has `job_submit.lua` use ours. Raises InputError."""
    if _NAME.fullmatch(partition) is None:
        raise InputError(f'partition "{visible(partition)}": must be letters, digits, "_", "." or "-"')
    numbers = ", ".join(map(str, users))
    return f'local dfrs = assert(loadfile("{folder / OURS}"))({{partition = "{partition}", users = {{{numbers}}}}})'


def site_script(load: str) -> str:
    """A `job_submit.lua` for a site without one."""
    return _SCRIPT.format(made=MADE, load=load, submit=_SUBMIT, modify=_MODIFY)


def made_for(text: str) -> str | None:
    """For which partition a `job_submit.lua` of ours is; None for one of the site's own."""
    found = _PARTITION.search(text) if is_made(text) else None
    return None if found is None else found[1]


def other_partition(text: str, partition: str) -> str | None:
    """For which other partition a `job_submit.lua` of ours is, if it is for another."""
    made = made_for(text)
    return None if made == partition else made


def is_made(text: str) -> bool:
    """Whether this `job_submit.lua` is ours to change and to remove."""
    return text.startswith(MADE)


def instructions(load: str) -> str:
    """What a site adds to its own script, on one line."""
    ends = f"local answer = {_SUBMIT}; if answer ~= slurm.SUCCESS then return answer end"
    return f"add `{load}`; before slurm_job_submit returns `{ends}`; the same with {_MODIFY} in slurm_job_modify"


def check_scripts(folder: Path, load: str, partition: str) -> Iterator[Finding]:
    """Whether both are there, and the site's calls ours."""
    ours, site = read_if_there(folder / OURS), read_if_there(folder / SITE)
    if ours == SOURCE.read_text():
        yield ok(OURS, "is there")
    else:
        found = "is missing" if ours is None else "is of another version of dfrs"
        yield wrong(OURS, f"{folder / OURS}: {found}", "dfrs slurm install writes it")
    if site is None:
        yield wrong(SITE, f"{folder / SITE}: is missing", "dfrs slurm install writes it")
    elif all(part in site for part in (load, _SUBMIT, _MODIFY)):
        yield ok(SITE, f"calls {OURS}")
    elif (other := other_partition(site, partition)) is not None:
        yield wrong(SITE, f"{folder / SITE}: is for partition {other}", ONE_PARTITION)
    elif is_made(site):
        yield wrong(SITE, f"{folder / SITE}: is for other users", "dfrs slurm install writes it")
    else:
        yield wrong(SITE, f"{folder / SITE}: does not call {OURS}", instructions(load))


def read_if_there(path: Path) -> str | None:
    """A file's text; None if there is no such file. Raises InputError."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None


def steering_users(conf: SlurmConf, names: Iterable[str]) -> list[int]:
    """Numbers of those who may start jobs of the partition: root, Slurm's own account, and these. Raises InputError."""
    own = conf.get("SlurmUser", "root").partition("(")[0]
    return sorted({0, *(_number(name) for name in (own, *names))})


def _number(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(f'user "{visible(name)}": must be an account of this machine') from None
