"""A node whose disk is full says so, and gets no jobs until there is room."""

import asyncio
import os
import subprocess
from types import SimpleNamespace

import pytest

from dfrs.live.agent import disk
from dfrs.live.agent.agent import host_identity, only_agent
from dfrs.live.agent.disk import DiskSpace
from dfrs.live.drivers.base import TaskState
from dfrs.model.errors import InputError
from tests.live_disks import fill, small_disk
from tests.live_fakes import FakeDriver, desired
from tests.unit.test_live_agent import met

MIB = 1 << 20


def looked_at(monkeypatch, place, mebibytes, free, files=1000, files_free=1000):
    """What is said of a disk of that size."""
    found = SimpleNamespace(
        f_blocks=mebibytes * 256, f_frsize=4096, f_bavail=int(free * 256), f_files=files, f_favail=files_free
    )
    monkeypatch.setattr(disk.os, "statvfs", lambda _: found)
    place.look()
    return place.problem


def test_when_a_disk_is_full(monkeypatch, tmp_path):
    place = DiskSpace(tmp_path)
    said = f"the disk of {tmp_path} is full: less than 16384 KiB are free, and what tasks print is dropped"
    for free, problem in ((16, ""), (15.9, said), (16, said), (31.9, said), (32, ""), (16, "")):
        assert looked_at(monkeypatch, place, 10_000, free) == problem
    # Of a small one a sixteenth is kept free.
    for free, less in ((4, ""), (3.9, "less than 4096 KiB")):
        assert less in looked_at(monkeypatch, place, 64, free)
    assert "fewer than 64 more files" in looked_at(monkeypatch, DiskSpace(tmp_path), 10_000, 100, files_free=63)
    # File systems that make files as they go tell no number of them.
    assert looked_at(monkeypatch, DiskSpace(tmp_path), 10_000, 100, files=0, files_free=0) == ""


def test_a_disk_that_is_gone(tmp_path):
    place = DiskSpace(tmp_path / "gone")
    place.look()
    assert place.problem == f"{tmp_path / 'gone'}: cannot be looked at: No such file or directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_the_agent_tells_the_controller(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], check=False).returncode:
        pytest.skip("nothing can be mounted here")

    async def live():
        driver = FakeDriver()
        async with met(driver, root=tmp_path) as (_, _, talk):
            assert talk.hello.problem == ""
            await talk.welcome(desired(TaskState.RUNNING, 1))
            await talk.status(state=TaskState.RUNNING)
            await talk.report(lambda report: report.problem == "")
            (tmp_path / "filler").write_bytes(bytes(MIB - 20_000))
            said = f"the disk of {tmp_path} is full: less than 64 KiB are free, and what tasks print is dropped"
            await talk.report(lambda report: report.problem == said)
            (tmp_path / "filler").unlink()
            await talk.report(lambda report: report.problem == "")

    try:
        asyncio.run(live())
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_an_agent_starts_again_on_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk", "500k") as root:
        known = host_identity(root)
        for name in ("n0", "n1"):
            with only_agent(root, name):
                pass
        # What was written of the second is gone, as where a file is written anew in another place.
        os.truncate(root / "n1.agent.lock", 0)
        fill(root)
        before = sorted(root.iterdir())
        assert host_identity(root) == known
        for name, number in (("n0", os.getpid()), ("n1", "unknown")):
            with (
                only_agent(root, name),
                pytest.raises(InputError, match=rf"another agent \(process {number}\) keeps node {name}"),
                only_agent(root, name),
            ):
                pass
        assert sorted(root.iterdir()) == before
        (root / "host-id").unlink()
        fill(root)
        with pytest.raises(InputError, match="host-id: cannot be written: No space left on device"):
            host_identity(root)
        assert sorted(root.iterdir()) == [path for path in before if path.name != "host-id"]
