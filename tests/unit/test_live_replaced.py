"""A controller that another one replaced on the same database: it notices, says so once, and ends with a status."""

import asyncio
import os
import subprocess
import sys

import httpx
import pytest

from dfrs.live.controller import engine
from dfrs.live.local.children import ChildProcesses
from dfrs.model.errors import ReplacedError
from dfrs.testing import make_controller, until
from tests.live_databases import serving, url
from tests.live_http import asked, bearer, served
from tests.live_processes import DFRS, wait_until
from tests.live_service import FakeService


def test_an_idle_controller_notices_too(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "OURS_S", 0.1)

    async def story():
        async with serving(tmp_path / "state", jobs=0) as first:
            # Nothing is written by itself.
            monkeypatch.setattr(first.state.activity, "point", lambda _: None)
            second = make_controller(tmp_path, database=url(tmp_path / "state"))
            await second.start()
            problem = await asyncio.wait_for(first.stopped(), 30)
            assert isinstance(problem, ReplacedError)
            assert str(problem) == first.healthy() == first.engine.trouble
            assert second.healthy() is None
            await second.stop()

    asyncio.run(story())


def test_the_one_that_replaced_it_is_left_alone_by_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "OURS_S", 0.1)

    async def story():
        async with serving(tmp_path / "state", jobs=1) as first:
            second = make_controller(tmp_path, database=url(tmp_path / "state"))
            await second.start()
            await asyncio.wait_for(first.stopped(), 30)
        stored = second.engine.checkpointer.made
        await until(lambda: second.engine.steps > 3)
        assert (second.healthy(), second.engine.checkpointer.made) == (None, stored)
        await second.stop()
        third = make_controller(tmp_path, database=url(tmp_path / "state"))
        await third.start()
        assert third.state.mismatches == 0
        await third.stop()

    asyncio.run(story())


def test_whoever_asks_meanwhile_may_ask_again_later():
    async def test(service, client):
        async def replaced(*_):
            raise ReplacedError("another controller has taken over")

        service.submit = replaced
        answer = await client.post(
            "/api/v1/jobs", json={"command": ["x"]}, headers=bearer(service.token("ann", "user"))
        )
        assert (answer.status_code, "taken over" in answer.json()["detail"]) == (503, True)
        assert int(answer.headers["retry-after"]) > 0

    asked(test)


def test_serving_ends_when_the_controller_does():
    class Ending(FakeService):
        def __init__(self):
            super().__init__()
            self.problem = asyncio.Event()

        async def stopped(self):
            await self.problem.wait()
            return ReplacedError("another controller has taken over")

    async def test():
        service = Ending()
        async with served(service) as (address, _, task):
            async with httpx.AsyncClient(base_url=address.url(tls=False)) as client:
                assert (await client.get("/healthz")).status_code == 200
            service.problem.set()
            ended, _ = await asyncio.wait({task}, timeout=30)
            by_itself.append(bool(ended))

    by_itself = []
    with pytest.raises(ReplacedError):
        asyncio.run(test())
    assert by_itself == [True]


def test_dfrs_up_does_not_start_it_again(tmp_path):
    said = []
    kept = ChildProcesses(tmp_path, said.append)
    kept.start("controller", (sys.executable, "-c", "import sys; print('dfrs: taken over'); sys.exit(4)"))
    process = kept._children["controller"].process
    assert process.wait(30) == 4
    with pytest.raises(ReplacedError, match=r"^taken over$"):
        kept.tend()
    kept.stop()
    assert said == []


@pytest.mark.long
def test_as_processes(tmp_path):
    """One line on standard error, exit status 4, while nobody asks for anything."""
    environment = os.environ | {"DFRS_DATABASE": f"sqlite:///{tmp_path}/shared.db"}

    def start(name):
        with (tmp_path / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(
                [*DFRS, "serve", "--state", tmp_path / name, "--listen", "127.0.0.1:0", "--discovery", "NONE"],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
            )
        running.append(process)
        wait_until(lambda: process.poll() is not None or (tmp_path / name / "client.json").exists(), "client file")
        return process

    running = []
    try:
        first, second = start("one"), start("two")
        assert first.wait(60) == 4
        words = (tmp_path / "one.err").read_text()
        assert words.count("another controller has taken over") == 1
        assert words.splitlines()[-1].startswith("dfrs: another controller has taken over this database")
        assert "Traceback" not in words
        assert second.poll() is None
        second.terminate()
        assert second.wait(60) == 0
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
