"""Bodies that are too long, too full or too slow: refused in one line, and nobody else waits for that."""

import asyncio
import contextlib
import gc
import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.api import bodies
from dfrs.live.api.bodies import SMALL, SUBMISSION
from dfrs.live.protocol.marks import Marks
from tests.live_http import asked, bearer

PIECE = 64 << 10
STALL_S = 0.25
"""The most CPU time for which the loop may be kept from others: what else the machine does is not its fault."""


def as_admin(test):
    async def run(service, client):
        client.headers.update(bearer(service.token("root", "admin")))
        await test(service, client)

    asked(run)


async def pieces(body):
    """As a socket gives it."""
    for k in range(0, len(body), PIECE):
        yield body[k : k + PIECE]
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def stalls():
    """A list with the most CPU time for which the event loop did nothing else.

    What other tests have left behind is not looked through for garbage meanwhile: that alone takes a third of a second.
    """
    gc.collect()
    gc.freeze()
    longest = [0.0]

    async def beat():
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            longest[0], before = max(longest[0], time.thread_time() - before), time.thread_time()

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        yield longest
        # It has its turn after whatever came last.
        await asyncio.sleep(0)
    finally:
        task.cancel()
        gc.unfreeze()


def full(start, part, end, size=SUBMISSION.bytes):
    """A body of nearly `size` bytes."""
    count = (size - len(start) - len(end)) // len(part)
    return start + part * count + end


UNKNOWN = b"{" + b",".join(b'"k%d":1' % k for k in range(170_000)) + b"}"
HEAVY = {
    "unknown fields": UNKNOWN,
    "the same unknown field": full(b"{", b'"a":1,', b'"b":1}'),
    "numbers": full(b'{"command":["a"],"after":[1', b",1", b"]}"),
    "empty strings": full(b'{"command":["a"', b',""', b"]}"),
    "lists": full(b'{"command":', b"[", b""),
    "objects": full(b'{"command":[{}', b",{}", b"]}"),
    "variables": full(b'{"command":["a"],"environment":{"A":"b"', b',"A":"b"', b"}}"),
    "wrong values": full(b'{"command":[1', b",1", b"]}", 39_000),
    "wrong variables, some": b'{"command":["a"],"environment":{%b}}' % b",".join(b'"A%d":1' % k for k in range(6600)),
    "wrong variables": b'{"command":["a"],"environment":{%b}}' % b",".join(b'"A%d":1' % k for k in range(170_000)),
    "spaces": full(b'{"command":["a"]', b" ", b"}"),
    "escapes": full(b'{"command":["', b"\\u001b", b'"]}'),
    "backslashes": full(b'{"command":["', b"\\\\", b'"]}'),
    "quotes in a string": full(b'{"command":["', b'\\"', b'"]}'),
    "a long name": full(b'{"command":["a"],"name":"', b"a", b'"}'),
}


@pytest.mark.parametrize("kind", HEAVY)
def test_no_body_keeps_others_waiting(kind):
    async def test(service, client):
        assert len(HEAVY[kind]) <= SUBMISSION.bytes
        async with stalls() as longest:
            answer = await client.post("/api/v1/jobs", content=pieces(HEAVY[kind]))
        assert answer.status_code in {201, 413, 422}, answer.text[:200]
        assert longest[0] < STALL_S
        if answer.is_error:
            assert len(answer.json()["detail"]) < 500

    as_admin(test)


def test_of_many_unknown_fields_the_first_are_named():
    async def test(service, client):
        document = {f"k{k}\x1b\u202e": 1 for k in range(1000)}
        answer = await client.post("/api/v1/jobs", json=document)
        assert answer.status_code == 422
        detail = answer.json()["detail"]
        assert detail.startswith(r"k0\x1b\u202e, k1\x1b\u202e, k2\x1b\u202e and 997 more: no such field; there are com")
        few = await client.post("/api/v1/tokens", json={"user": "a", "role": "user", "x": 1, "y": 2})
        assert few.json()["detail"] == "x, y: no such field; there are user, role, days, local"

    as_admin(test)


def test_each_route_has_its_own_limit_and_it_is_checked_before_the_body_comes():
    async def test(service, client):
        read = []

        async def counted():
            for _ in range(1000):
                read.append(1)
                yield b" " * PIECE

        for path, most in (("jobs", SUBMISSION.bytes), ("tokens", SMALL.bytes)):
            read.clear()
            streamed = await client.post(f"/api/v1/{path}", content=counted())
            assert (streamed.status_code, streamed.json()) == (413, {"detail": f"body: must be at most {most} bytes"})
            assert len(read) <= most // PIECE + 2
            read.clear()
            long = {"content-length": "99999999"}
            declared = await client.post(f"/api/v1/{path}", content=counted(), headers=long)
            assert declared.status_code == 413
            assert declared.json()["detail"] == f"body: 99999999 bytes: must be at most {most}"
            assert len(read) <= 1
        just = {"user": "a", "role": "user"}
        body = json.dumps(just).ljust(SMALL.bytes).encode()
        assert (await client.post("/api/v1/tokens", content=body)).status_code == 201
        assert (await client.post("/api/v1/tokens", content=body + b" ")).status_code == 413

    as_admin(test)


def test_the_largest_job_that_the_controller_takes_fits():
    async def test(service, client):
        # As many arguments and variables as there may be, and 256 KiB of characters that JSON writes as six.
        command = ["\x01" * 40] * 4096
        environment = {f"A{k}": "\x01" * 90 for k in range(1000)}
        after = [1] * 1000
        document = {"command": command, "environment": environment, "after": after}
        answer = await client.post("/api/v1/jobs", json=document)
        assert answer.status_code == 201, answer.text[:200]
        assert service.requests[-1].command == tuple(command)

    as_admin(test)


def test_of_a_body_that_is_too_full_the_rest_is_not_read():
    async def test(service, client):
        read = []

        async def counted():
            async for piece in pieces(HEAVY["numbers"]):
                read.append(1)
                yield piece

        answer = await client.post("/api/v1/jobs", content=counted())
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("body: must have at most 20000 quotes, commas and brackets")
        assert len(read) == 1

    as_admin(test)


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(bodies, "BODY_S", 0.1)

    async def slow():
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    async def test(service, client):
        answer = await client.post("/api/v1/jobs", content=slow())
        assert (answer.status_code, answer.json()) == (408, {"detail": "body: must come within 0.1 s"})

    as_admin(test)


def naive_marks(text):
    """Character by character."""
    count, inside, escaped = 0, False, False
    for character in text:
        if escaped:
            escaped = False
        elif inside and character == "\\":
            escaped = True
        elif character == '"':
            inside = not inside
            count += 1
        elif not inside and character in ",[{":
            count += 1
    return count


VALUES = st.recursive(
    st.text(alphabet='\\",[{}]a\n', max_size=8) | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='\\",a', max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES, st.integers(1, 7))
def test_marks_are_counted_whatever_the_pieces(value, size):
    text = json.dumps(value).encode()
    places = [*range(0, len(text), size), len(text)]
    counted = Marks(naive_marks(text.decode()))
    short = Marks(naive_marks(text.decode()) - 1)
    fits = [counted.add(text[a:b]) for a, b in pairwise(places)]
    assert all(fits)
    assert counted._count == naive_marks(text.decode())
    if naive_marks(text.decode()):
        assert not all(short.add(text[a:b]) for a, b in pairwise(places))
