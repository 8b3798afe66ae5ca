"""Users are told of their jobs: at least once, and never again what is known as sent; nothing waits for that."""

import asyncio
import json
import os
import socketserver
import subprocess
import sys
import threading
from email import message_from_string
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dfrs.live.controller import outbox
from dfrs.live.controller.senders import CommandSender, UrlSender
from dfrs.live.protocol.resources import JobState
from dfrs.testing import InMemoryCluster, run_virtually, until
from dfrs.testing.drivers import wait_for
from tests.processes import alive


class Mailbox:
    """A way to tell, which fails, hangs or is slow as a test says."""

    def __init__(self):
        self.got, self.fails, self.hangs, self.at_work = [], 0, False, 0

    async def __call__(self, document):
        assert not self.at_work
        self.at_work += 1
        try:
            await asyncio.sleep(3600.0 if self.hangs else 0.01)
            if self.fails:
                self.fails -= 1
                raise OSError("no way")
            self.got.append(document)
        finally:
            self.at_work -= 1

    @property
    def told(self):
        return [(each["job"], each["event"]) for each in self.got]


def cluster(box, **options):
    return InMemoryCluster(notify={"command": box}, **options)


def run(story, *arguments):
    return run_virtually(0, lambda _: story(*arguments))


def rows(live):
    """What is on record and not known as sent."""
    return live.controller.database.read(
        lambda connection: [
            row.key for row in connection.execute(outbox.tables.meta.select()) if row.key.startswith("notify ")
        ]
    )


def test_what_is_told_and_what_is_said_of_it():
    async def story():
        box = Mailbox()
        async with cluster(box) as live:
            done = await live.submit("fail", "0", notify=("begin", "end"), notify_to="ann@example.org", name="good")
            await live.reaches(done, JobState.DONE)
            await until(lambda: len(box.got) == 2)
            begin, end = box.got
            assert (begin["event"], begin["state"], begin["to"], begin["ended_at"]) == (
                "begin",
                "running",
                "ann@example.org",
                None,
            )
            assert begin["started_at"] is not None
            assert (end["event"], end["state"], end["exit"], end["exit_code"]) == ("end", "done", "done", 0)
            assert (end["name"], end["user"], end["nodes"], end["cluster"]) == ("good", "ann", begin["nodes"], "dfrs")
            assert end["id"] != begin["id"]
            assert live.controller.cluster().notifies
            await until(lambda: not live.controller.engine.outbox._channels[0].pending)
            assert await rows(live) == []

    run(story)


def test_of_jobs_that_fail_what_was_asked_for_is_told():
    wanted = {
        (): [],
        ("begin",): ["begin"],
        ("end",): ["end"],
        ("fail",): ["fail"],
        ("begin", "end", "fail"): ["begin", "fail"],
    }

    async def story():
        box = Mailbox()
        async with cluster(box) as live:
            jobs = {events: await live.submit("fail", "3", notify=events) for events in wanted}
            for job in jobs.values():
                await live.reaches(job, JobState.FAILED)
            last = await live.submit("fail", "0", notify=("end", "fail"))
            await until(lambda: (last, "end") in box.told)
            for events, job in jobs.items():
                assert [event for name, event in box.told if name == job] == wanted[events]

    run(story)


def test_a_job_that_never_began_tells_that_it_was_cancelled():
    async def story():
        box = Mailbox()
        async with cluster(box) as live:
            job = await live.submit(held=True, notify=("begin", "fail"))
            await live.controller.cancel(job, "ann")
            await until(lambda: box.told)
            assert box.told == [(job, "fail")]
            assert box.got[0]["state"] == "cancelled"

    run(story)


def test_what_cannot_be_sent_is_tried_again_and_then_given_up(monkeypatch):
    monkeypatch.setattr(outbox, "DELAYS_S", (0.1, 0.2))

    async def story():
        box = Mailbox()
        box.fails = 2
        async with cluster(box) as live:
            await live.submit("fail", "0", notify=("end",))
            await until(lambda: box.told)
            box.fails = 1 + len(outbox.DELAYS_S)
            other = await live.submit("fail", "0", notify=("end",))
            await until(lambda: not box.fails)
            await until(lambda: not live.controller.engine.outbox._channels[0].pending)
            assert (other, "end") not in box.told
            assert await rows(live) == []

    run(story)


def test_nothing_waits_for_one_that_hangs(monkeypatch):
    monkeypatch.setattr(outbox, "SEND_S", 2.0)
    monkeypatch.setattr(outbox, "DELAYS_S", (0.1,))

    async def story():
        box = Mailbox()
        box.hangs = True
        async with cluster(box) as live:
            for _ in range(3):
                await live.reaches(await live.submit("fail", "0", notify=("end",)), JobState.DONE)
            assert box.got == []
            assert len(await rows(live)) == 3
            box.hangs = False
            await until(lambda: len(box.got) == 3)

    run(story)


@pytest.mark.parametrize("kill", [False, True])
def test_after_a_restart_all_is_sent_that_was_not_known_as_sent_and_nothing_else(kill, tmp_path):
    async def story():
        box = Mailbox()
        async with cluster(box, directory=tmp_path) as live:
            first = await live.submit("fail", "0", notify=("end",))
            await until(lambda: (first, "end") in box.told)
            await until(lambda: not live.controller.engine.outbox._channels[0].pending)
            await until_gone(live)
            box.hangs = True
            second = await live.submit("fail", "0", notify=("end",))
            await live.reaches(second, JobState.DONE)
            await live.restart(kill=kill)
            box.hangs = False
            await live.restart(kill=kill)
            await until(lambda: (second, "end") in box.told)
            await live.restart(kill=kill)
            await asyncio.sleep(1.0)
            assert box.told == [(first, "end"), (second, "end")]

    run(story)


async def until_gone(live):
    while await rows(live):
        await asyncio.sleep(0.01)


def test_killed_between_the_sending_and_its_record_it_is_sent_again_under_the_same_id(tmp_path, monkeypatch):
    async def story():
        box = Mailbox()
        async with cluster(box, directory=tmp_path) as live:

            async def never(_):
                await asyncio.Event().wait()

            with monkeypatch.context() as patch:
                patch.setattr(live.controller.engine.outbox, "_removed", never)
                job = await live.submit("fail", "0", notify=("end",))
                await until(lambda: box.told)
                await live.restart(kill=True)
            await until(lambda: len(box.got) == 2)
            await until_gone(live)
            await live.restart(kill=True)
            await asyncio.sleep(1.0)
            assert box.told == [(job, "end")] * 2
            assert box.got[0] == box.got[1]

    run(story)


def test_where_nobody_is_told_nothing_is_recorded():
    async def story():
        async with InMemoryCluster() as live:
            await live.reaches(await live.submit("fail", "0", notify=("begin", "end")), JobState.DONE)
            assert await rows(live) == []
            assert not live.controller.cluster().notifies

    run(story)


def test_more_than_can_wait_are_not_taken(monkeypatch):
    async def story():
        monkeypatch.setattr(outbox, "MOST", 2)
        box = Mailbox()
        box.hangs = True
        async with cluster(box) as live:
            for _ in range(4):
                await live.reaches(await live.submit("fail", "0", notify=("end",)), JobState.DONE)
            assert len(await rows(live)) == 2

    run(story)


def test_a_user_who_is_told_much_delays_and_drops_nobody_elses(monkeypatch):
    async def story():
        monkeypatch.setattr(outbox, "MOST_OF_USER", 3)
        monkeypatch.setattr(outbox, "SEND_S", 2.0)
        box = Mailbox()
        box.hangs = True
        async with cluster(box) as live:
            for _ in range(5):
                await live.reaches(await live.submit("fail", "0", notify=("end",)), JobState.DONE)
            assert len(await rows(live)) == 3
            other = await live.submit("fail", "0", notify=("end",), user="bob")
            await live.reaches(other, JobState.DONE)
            assert len(await rows(live)) == 4
            box.hangs = False
            await until(lambda: len(box.got) == 4)
            users = [each["user"] for each in box.got]
            assert users.index("bob") <= 1
            await live.reaches(await live.submit("fail", "0", notify=("end",)), JobState.DONE)
            await until(lambda: len(box.got) == 5)

    run(story)


DOCUMENT = {
    "id": "3.0.c0ffee00.fail",
    "event": "fail",
    "cluster": "dfrs",
    "to": None,
    "job": 3,
    "name": "fit\nBcc: mallory",
    "user": "ann",
    "state": "failed",
    "exit": "status 7",
    "nodes": ["n1"],
    "submitted_at": 1e9,
    "started_at": 1e9,
    "ended_at": 1e9 + 60,
}


def program(folder, text):
    made = folder / "program"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return CommandSender(made)


def test_a_program_gets_the_document_and_no_secret_of_the_controller(tmp_path, monkeypatch):
    monkeypatch.setenv("DFRS_DATABASE", "postgresql://u:secret@h/d")
    asyncio.run(program(tmp_path, f"cat > {tmp_path}/got; env > {tmp_path}/env")(DOCUMENT))
    assert json.loads((tmp_path / "got").read_text()) == DOCUMENT
    assert "secret" not in (tmp_path / "env").read_text()


def test_a_program_that_fails_does_not_read_or_is_not_there(tmp_path):
    with pytest.raises(OSError, match="program ended with status 3"):
        asyncio.run(program(tmp_path, "exit 3")(DOCUMENT | {"nodes": ["n" * 60] * 5000}))
    with pytest.raises(OSError, match="No such file"):
        asyncio.run(CommandSender(tmp_path / "none")(DOCUMENT))


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path):
    async def story():
        sending = asyncio.create_task(program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait")(DOCUMENT))
        while not ((tmp_path / "child").exists() and (tmp_path / "child").read_text().strip()):
            await asyncio.sleep(0.01)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return int((tmp_path / "child").read_text())

    child = asyncio.run(story())
    # Killed it is at once, and collected by whoever does that here.
    wait_for(lambda: not alive(child))


@pytest.fixture
def hook():
    """An address that answers as `answers` says: what it got."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(self.server.answers)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        server.got, server.answers = [], 204
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_address_gets_the_document_and_its_secret_is_not_told(hook):
    sender = UrlSender(f"http://127.0.0.1:{hook.server_port}/secret")
    asyncio.run(sender(DOCUMENT))
    assert hook.got == [DOCUMENT]
    hook.answers = 302
    with pytest.raises(OSError, match=r"^the address answers 302$"):
        asyncio.run(sender(DOCUMENT))
    with pytest.raises(OSError, match=r"^the address does not answer: ConnectError$"):
        asyncio.run(UrlSender("http://127.0.0.1:1/secret")(DOCUMENT))


def test_the_example_sends_mail(tmp_path):
    sendmail = tmp_path / "sendmail"
    sendmail.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/mail\n')
    sendmail.chmod(0o755)
    example = Path(__file__).parents[2] / "examples/notify/mail.py"
    for name, to in (("fit", "ann@example.org"), ("x", None)):
        told = json.dumps(DOCUMENT | {"name": name, "to": to})
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        subprocess.run([sys.executable, example], input=told, text=True, env=environment, check=True)
        mail = message_from_string((tmp_path / "mail").read_text())
        assert (mail["To"], mail["Subject"]) == (to or "ann", f"dfrs: job 3 {name} has failed")
        assert "status 7" in mail.get_payload()
    assert (tmp_path / "words").read_text() == "-i -t\n"
    hostile = subprocess.run(
        [sys.executable, example], input=json.dumps(DOCUMENT), text=True, env=environment, stderr=subprocess.PIPE
    )
    assert hostile.returncode
    assert "Bcc" not in message_from_string((tmp_path / "mail").read_text())


class MailServer(socketserver.StreamRequestHandler):
    """Takes one mail by SMTP."""

    def handle(self):
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                self.server.got = b"".join(iter(self.rfile.readline, b".\r\n")).decode()
            self.wfile.write(b"221 done\r\n" if line.upper().startswith(b"QUIT") else b"250 taken\r\n")


def test_the_example_sends_mail_by_smtp(tmp_path):
    example = Path(__file__).parents[2] / "examples/notify/mail.py"
    copy = tmp_path / "mail.py"
    with socketserver.TCPServer(("127.0.0.1", 0), MailServer) as server:
        named = f'SERVER = "127.0.0.1:{server.server_address[1]}"'
        copy.write_text(example.read_text().replace('SERVER = ""', named))
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        subprocess.run([sys.executable, copy], input=json.dumps(DOCUMENT | {"name": "fit"}), text=True, check=True)
        thread.join()
    mail = message_from_string(server.got)
    assert (mail["To"], mail["Subject"]) == (DOCUMENT["to"] or "ann", "dfrs: job 3 fit has failed")
