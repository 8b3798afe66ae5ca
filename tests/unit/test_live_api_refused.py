"""Tokens that are not good: logged without the token, counted, and answered later and later."""

import time

import httpx
from structlog.testing import capture_logs

from dfrs.live.api.prometheus import Meters
from dfrs.live.api.refused_tokens import ADDRESSES, FORGOTTEN_S, FREE, LONGEST_S, RefusedTokens
from tests.live_http import asked, bearer


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def kept(clock=None):
    return RefusedTokens(Meters(), clock=clock or Clock())


def test_the_delay_of_an_address_grows_up_to_a_bound_and_is_forgotten():
    clock = Clock()
    refused = kept(clock)
    delays = [refused.note("192.0.2.1", "/x") for _ in range(20)]
    assert delays[:FREE] == [0.0] * FREE
    assert delays[FREE : FREE + 4] == [0.1, 0.2, 0.4, 0.8]
    assert max(delays) == delays[-1] == LONGEST_S
    assert refused.note("192.0.2.2", "/x") == 0.0
    clock.now_s += FORGOTTEN_S + 1
    assert refused.note("192.0.2.1", "/x") == 0.0
    assert max(refused.note("192.0.2.1", "/x") for _ in range(5000)) == LONGEST_S


def test_a_network_of_ipv6_is_one_address_and_mapped_ones_are_those_of_ipv4():
    refused = kept()
    assert [refused.note(f"2001:db8::{k:x}", "/x") for k in range(5)][-1] > 0.0
    assert refused.note("2001:db8:0:1::1", "/x") == 0.0
    assert [refused.note(host, "/x") for host in ("192.0.2.9", "::ffff:192.0.2.9") * 2][-1] > 0.0
    assert [refused.note("fe80::1%eth0", "/x") for _ in range(4)][-1] > 0.0


def test_what_is_remembered_is_bounded():
    refused = kept()
    for k in range(ADDRESSES + 500):
        refused.note(f"10.{k >> 16}.{k >> 8 & 255}.{k & 255}", "/x")
        assert len(refused) <= ADDRESSES
    for _ in range(FREE):
        refused.note("192.0.2.1", "/x")
    assert refused.note("192.0.2.1", "/x") > 0.0


def test_it_is_logged_with_address_and_route_at_most_once_a_second():
    clock = Clock()
    refused = kept(clock)
    with capture_logs() as lines:
        for _ in range(10):
            refused.note("192.0.2.1", "/api/v1/jobs/{job}")
        refused.note("192.0.2.2", "/metrics")
        clock.now_s += 1.5
        refused.note("192.0.2.1", "/api/v1/me")
    assert [(line["address"], line["route"], line["so_far"]) for line in lines] == [
        ("192.0.2.1", "/api/v1/jobs/{job}", 1),
        ("192.0.2.2", "/metrics", 1),
        ("192.0.2.1", "/api/v1/me", 11),
    ]
    assert {line["log_level"] for line in lines} == {"warning"}


def test_bad_tokens_wait_and_good_ones_never_do(monkeypatch):
    delays, note = [], RefusedTokens.note

    def noted(self, host, route):
        delays.append(note(self, host, route))
        return delays[-1]

    monkeypatch.setattr(RefusedTokens, "note", noted)

    async def test(service, client):
        good, bad = bearer(service.token("alice", "admin")), bearer("dfrs_hunter2")
        with capture_logs() as lines:
            begin_s = time.perf_counter()
            for _ in range(FREE + 2):
                answer = await client.get("/api/v1/jobs/17?x=1", headers=bad)
                assert answer.status_code == 401
            # It waits for what is said, and no less.
            assert time.perf_counter() - begin_s > 0.29
        assert delays == [0.0] * FREE + [0.1, 0.2]
        assert lines
        assert "hunter2" not in str(lines)
        assert (lines[0]["address"], lines[0]["route"]) == ("127.0.0.1", "/api/v1/jobs/{job}")
        for _ in range(3):
            assert (await client.get("/api/v1/me", headers=good)).status_code == 200
            assert (await client.get("/api/v1/me")).status_code == 401
        assert len(delays) == FREE + 2
        metrics = (await client.get("/metrics", headers=good)).text
        assert f"dfrs_tokens_refused_total {FREE + 2}.0" in metrics
        # Another address is not slowed for it.
        elsewhere = httpx.ASGITransport(client._transport.app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=elsewhere, base_url="http://dfrs") as other:
            assert (await other.get("/api/v1/me", headers=bad)).status_code == 401
        assert delays[-1] == 0.0

    asked(test)
