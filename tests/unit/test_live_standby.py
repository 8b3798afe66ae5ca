"""Standby controllers without a database server: who judges that nobody leads, who finds the leader, what is copied."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.agent.connection import Controllers, Server
from dfrs.live.api.certificates import own_certificates
from dfrs.live.api.routes import create_app
from dfrs.live.client import Client, Endpoint, UnreachableError, find_endpoint
from dfrs.live.controller import checkpoint
from dfrs.live.controller.database import Database
from dfrs.live.controller.observing import Observer
from dfrs.live.controller.standby.following import Follower
from dfrs.live.controller.standby.lease import GRACE_S, LEASE_S, TAKE_OVER_S, Lease, LeaseWatch, Seen
from dfrs.live.controller.state import State
from dfrs.live.controller.tokens import Tokens
from dfrs.live.errors import UnavailableError
from dfrs.live.failover import FailoverTransport
from dfrs.live.protocol.ports import Aside
from dfrs.live.protocol.resources import JobRequest
from dfrs.live.protocol.wire import Hello
from dfrs.model.errors import InputError
from dfrs.policies.names import find_policy
from dfrs.testing import make_controller
from tests.live_databases import serving, url
from tests.live_fakes import FakeDriver
from tests.live_http import served
from tests.live_service import FakeService
from tests.unit.test_live_agent import agent_settings, eventually, running

# Whether anybody leads.


def seen(beat=1, *, held=True, ended=False, writer="a:7"):
    return Seen(writer=writer, leader=Lease(owner="a", beat=beat, ended=ended).text(), held=held)


def test_a_lease_reads_back():
    lease = Lease(owner="ab", beat=3, now_s=1.5, url="https://head:7070", ended=True)
    assert Lease.of(lease.text()) == lease
    assert [Lease.of(text) for text in (None, "", "3", "[]", '{"owner": "a", "new": 1}')] == [None] * 5


def test_the_leader_stops_before_a_standby_takes_over():
    assert LEASE_S < TAKE_OVER_S
    assert GRACE_S < TAKE_OVER_S


@pytest.mark.parametrize(("held", "limit_s"), [(True, TAKE_OVER_S), (False, GRACE_S)])
def test_silence_is_measured_from_the_last_change_that_was_seen(held, limit_s):
    watch = LeaseWatch()
    assert not watch.is_vacant(seen(1, held=held), 100.0)
    assert not watch.is_vacant(seen(1, held=held), 99.9 + limit_s)
    assert not watch.is_vacant(seen(2, held=held), 100.1 + limit_s)
    assert not watch.is_vacant(seen(2, held=held), 100.0 + 2 * limit_s)
    assert watch.is_vacant(seen(2, held=held), 100.1 + 2 * limit_s)
    assert watch.since_s == 100.1 + limit_s


def test_what_was_there_at_the_first_look_may_be_old():
    """The core's time does not go on from there, but by the wall clock: all controllers may have been away."""
    watch = LeaseWatch()
    watch.is_vacant(seen(1, ended=True), 5.0)
    assert watch.since_s is None
    watch.is_vacant(seen(2), 6.0)
    assert watch.since_s == 6.0
    watch.forget()
    watch.is_vacant(seen(3), 7.0)
    assert watch.since_s is None


def test_what_was_seen_before_a_break_does_not_count():
    watch = LeaseWatch()
    assert not watch.is_vacant(seen(), 0.0)
    watch.forget()
    assert not watch.is_vacant(seen(), 60.0)
    assert watch.is_vacant(seen(), 60.0 + TAKE_OVER_S)


def test_other_signs():
    assert LeaseWatch().is_vacant(seen(ended=True), 0.0)
    assert LeaseWatch().is_vacant(Seen(writer=None, leader=None, held=False), 0.0)
    older = LeaseWatch()  # A leader that keeps no lease, but writes.
    assert not older.is_vacant(Seen(writer="a:1", leader=None, held=False), 0.0)
    assert not older.is_vacant(Seen(writer="a:2", leader=None, held=False), TAKE_OVER_S)
    assert older.is_vacant(Seen(writer="a:2", leader=None, held=False), 2 * TAKE_OVER_S)


@given(st.lists(st.tuples(st.floats(0.01, 0.9), st.booleans(), st.booleans()), max_size=60))
def test_a_leader_that_beats_is_never_taken_for_gone(looks):
    """However it is looked at, if a beat comes at least each `GRACE_S`; the lock may be lost and held again."""
    watch, now, beat, beat_at = LeaseWatch(), 0.0, 0, 0.0
    for pause, beats, held in looks:
        now += pause
        if beats or now - beat_at > GRACE_S - 0.9:
            beat, beat_at = beat + 1, now
        assert not watch.is_vacant(seen(beat, held=held), now)


def test_options_that_cannot_be(dfrs, tmp_path):
    cases = ("--standby: only PostgreSQL", "--standby"), ('--peer "head2:7070"', "--peer", "head2:7070")
    for words, *options in cases:
        status, _, err = dfrs("serve", "--state", tmp_path / "s", "--discovery", "NONE", *options)
        assert (status, len(err.splitlines()), words in err) == (2, 1, True), err
    assert not (tmp_path / "s").exists()


# What one answers that stands by.


def aside_client(found):
    app = create_app(FakeService(), page=None, aside=lambda: found)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://dfrs")


def test_a_standby_serves_nobody_and_says_who_does():
    async def test():
        async with aside_client(Aside("standby: the leader is https://a:7070", "https://a:7070")) as client:
            for method, path in (("GET", "/api/v1/jobs"), ("POST", "/api/v1/jobs"), ("GET", "/healthz")):
                answer = await client.request(method, path)
                assert answer.status_code == 503
                assert answer.json() == {"detail": "standby: the leader is https://a:7070"}
                assert answer.headers["dfrs-leader"] == "https://a:7070"
                assert answer.headers["retry-after"] == "1"
            page = await client.get("/")
            assert (page.status_code, 'href="https://a:7070/"' in page.text) == (503, True)
            figures = await client.get("/metrics")
            assert (figures.status_code, "dfrs_leader 0.0" in figures.text) == (200, True)
        async with aside_client(Aside("standby")) as client:
            assert "dfrs-leader" not in (await client.get("/healthz")).headers
        async with aside_client(None) as client:
            assert (await client.get("/healthz")).status_code == 200

    asyncio.run(test())


# Clients with several addresses.

A, B, C = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"


class Cluster(httpx.BaseTransport):
    """Controllers by address: each a function of a request. Keeps who was asked what."""

    def __init__(self, **controllers):
        self.controllers = {f"http://127.0.0.1:{port[1:]}": answer for port, answer in controllers.items()}
        self.asked = []
        self.probed = 0

    def handle_request(self, request):
        base = f"http://{request.url.host}:{request.url.port}"
        self.probed += request.url.path == "/healthz"
        if request.url.path == "/healthz":
            assert "authorization" not in request.headers
        else:
            self.asked.append((base, request.method, request.headers["host"]))
        return self.controllers[base](request)


def refuses(_request):
    raise httpx.ConnectError("refused")


def breaks(request):
    """It leads, and goes away in the middle of a request."""
    if request.url.path == "/healthz":
        return httpx.Response(200)
    raise httpx.ReadError("broken")


def hangs(_request):
    """It was stopped: its kernel takes connections."""
    raise httpx.ReadTimeout("nothing comes")


def leads(_request):
    return httpx.Response(200, json={"jobs": [7]})


def stands_by(leader=None):
    headers = {"dfrs-aside": "yes"} | ({} if leader is None else {"dfrs-leader": leader})
    return lambda _request: httpx.Response(503, json={"detail": "standby: looks"}, headers=headers)


def client_of(cluster, *urls, patience_s=0.0):
    pauses = []
    transport = FailoverTransport(urls, cluster, patience_s=patience_s, sleep=pauses.append)
    return httpx.Client(transport=transport, base_url=f"{urls[0]}/api/v1"), pauses


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("first", [refuses, hangs, stands_by(), stands_by(B)])
def test_the_next_one_is_asked(first, method):
    cluster = Cluster(p1=first, p2=leads)
    client, _ = client_of(cluster, A, B, patience_s=5.0)
    assert client.request(method, "/jobs").json() == {"jobs": [7]}
    client.request(method, "/jobs")
    # The host that the other one is told is its own, and it stays the one that is asked, without being probed again.
    assert cluster.asked == [(B, method, "127.0.0.1:2")] * 2
    assert cluster.probed == 2


@pytest.mark.parametrize("gone", [refuses, stands_by(B)])
def test_one_that_led_is_left_when_it_leads_no_more(gone):
    cluster = Cluster(p1=leads, p2=refuses)
    client, _ = client_of(cluster, A, B, patience_s=5.0)
    client.post("/jobs")
    cluster.controllers = {A: gone, B: leads}
    assert client.post("/jobs").json() == {"jobs": [7]}
    assert [base for base, *_ in cluster.asked] == [A, A, B]


def test_a_submission_that_may_have_been_taken_is_not_repeated():
    cluster = Cluster(p1=breaks, p2=leads)
    client, _ = client_of(cluster, A, B, patience_s=5.0)
    with pytest.raises(httpx.ReadError):
        client.post("/jobs", json={})
    assert [base for base, *_ in cluster.asked] == [A]
    cluster.controllers[A] = refuses
    assert client.post("/jobs", json={}).status_code == 200
    assert [base for base, *_ in cluster.asked] == [A, B]


def test_a_question_is_repeated():
    left = [leads, breaks, refuses]
    cluster = Cluster(p1=lambda request: left.pop(0)(request), p2=leads)  # noqa: PLW0108
    client, pauses = client_of(cluster, A, B, patience_s=5.0)
    assert client.get("/jobs").status_code == 200
    assert [base for base, *_ in cluster.asked] == [A, B]
    assert len(pauses) == 1


def test_only_named_addresses_are_asked():
    """Whoever answers at one cannot have the token sent elsewhere."""
    cluster = Cluster(p1=stands_by(C), p2=leads, p3=leads)
    client, _ = client_of(cluster, A, B, patience_s=5.0)
    client.get("/jobs")
    assert [base for base, *_ in cluster.asked] == [B]


def test_the_leader_that_is_named_is_asked_first():
    cluster = Cluster(p1=stands_by(C), p2=leads, p3=leads)
    client, _ = client_of(cluster, A, B, C, patience_s=5.0)
    client.get("/jobs")
    assert [base for base, *_ in cluster.asked] == [C]


def test_it_waits_for_a_take_over_and_not_for_ever():
    left = [refuses, refuses, leads, leads]
    cluster = Cluster(p1=refuses, p2=lambda request: left.pop(0)(request))  # noqa: PLW0108
    client, pauses = client_of(cluster, A, B, patience_s=60.0)
    assert client.post("/jobs").status_code == 200
    assert len(pauses) == 2
    for controllers in ({"p1": refuses, "p2": stands_by()}, {"p1": stands_by(), "p2": refuses}):
        client, _ = client_of(Cluster(**controllers), A, B)
        assert client.get("/jobs").status_code == 503
    client, _ = client_of(Cluster(p1=refuses, p2=refuses), A, B)
    with pytest.raises(httpx.ConnectError):
        client.get("/jobs")


def test_the_typed_client_says_why():
    def ask(*controllers):
        cluster = Cluster(p1=controllers[0], p2=controllers[1])
        with Client(Endpoint(url=f"{A},{B}", token="t"), transport=cluster) as client:
            client._failover._patience_s = 0.0
            return client.submit(JobRequest(command=("x",)))

    assert ask(leads, refuses) == [7]
    with pytest.raises(UnavailableError, match=r"^standby: looks$"):
        ask(stands_by(), refuses)
    with pytest.raises(UnreachableError, match=r"cannot be reached|refused"):
        ask(refuses, refuses)


def test_one_address_is_asked_as_ever():
    with Client(Endpoint(url=A), transport=Cluster(p1=refuses)) as client, pytest.raises(UnreachableError):
        client.nodes()
    assert client._failover is None


def test_the_token_of_the_client_file_goes_to_its_addresses_alone(tmp_path):
    (tmp_path / "client.json").write_text(json.dumps({"url": f"{A},{B}", "token": "t", "ca": None}))
    environ = {"DFRS_STATE": str(tmp_path)}
    assert find_endpoint(environ=environ).url == f"{A},{B}"
    tokens = {server: find_endpoint(server, environ=environ).token for server in (A, B, f"{B},{A}/", C, f"{A},{C}")}
    assert list(tokens.values()) == ["t", "t", "t", None, None]
    assert find_endpoint(environ=environ | {"DFRS_SERVER": f"{A}, {C}"}).url == f"{A},{C}"
    for server in (f"{A},head:7070", f"{A},http://head:7070", ","):
        with pytest.raises(InputError, match="--server"):
            find_endpoint(server, environ=environ)


# Agents with several addresses.


def test_an_agent_asks_one_after_the_other_and_then_waits():
    several = Controllers(Server(url="https://a:1, https://b:1/,https://c:1", token="t").urls)
    walk = [(several.url, several.go_on()) for _ in range(4)]
    assert walk == [("https://a:1", False), ("https://b:1", False), ("https://c:1", True), ("https://a:1", False)]
    assert several.url == "https://b:1"
    several.welcomed()
    assert not several.go_on("https://a:1/")
    assert several.url == "https://a:1"
    # The one that was asked itself, or one that is not among them, is nobody to go to.
    several.go_on("https://a:1")
    assert several.url == "https://b:1"
    several.go_on("https://d:1")
    assert several.url == "https://c:1"
    one = Controllers(Server(url="https://a:1", token="t").urls)
    assert [one.go_on(), one.go_on("https://a:1"), one.url] == [True, True, "https://a:1"]


@pytest.mark.parametrize("server", ["https://a:1,b:1", "https://a:1,http://b:1", "http://127.0.0.1:1,ftp://b"])
def test_an_agent_refuses_a_bad_address_among_good_ones(server):
    with pytest.raises(InputError, match="server"):
        Server(url=server, token="t").trust()


def test_both_have_authorities_of_their_own_and_one_file_has_them_all(tmp_path):
    """Over TLS, a client and an agent come from a standby to the leader, whoever leads; without the file, to nobody."""

    async def test():
        service = FakeService()
        service.add_node("node1")
        admin, agents = service.token("ann", "admin"), service.token("agents", "agent")
        made = [own_certificates(tmp_path / name, ["127.0.0.1"]) for name in "ab"]
        both = tmp_path / "ca.pem"
        both.write_text("".join(each.authority.read_text() for each in made))
        leading = [False, True]
        urls = ["", ""]

        def aside(k):
            return lambda: None if leading[k] else Aside("standby", urls[1 - k])

        async with (
            served(service, certificates=made[0], aside=aside(0)) as (one, _, _),
            served(service, certificates=made[1], aside=aside(1)) as (two, _, _),
        ):
            urls[:] = [address.url(tls=True) for address in (one, two)]
            server = ",".join(urls)

            def ask(ca):
                with Client(Endpoint(url=server, token=admin, ca=ca)) as client:
                    return [node.name for node in client.nodes()]

            assert await asyncio.to_thread(ask, both) == ["node1"]
            with pytest.raises(UnreachableError, match="not trusted"):
                await asyncio.to_thread(ask, made[0].authority)
            controller = SimpleNamespace(url=server, token=agents)
            settings = agent_settings(controller, server=Server(url=server, token=agents, ca=both))
            async with running(FakeDriver(), settings):
                await eventually(lambda: len(service.attachments) == 1)
                leading[:] = [True, False]
                service.attachments[0].link.close("it is replaced")
                await eventually(lambda: len(service.attachments) == 2)
                assert await asyncio.to_thread(ask, both) == ["node1"]

    asyncio.run(test())


# What a standby has of the state.


def follower_of(controller, policy=None):
    name = policy or controller.settings.policy
    settings = controller.settings
    return Follower(settings, find_policy(name), None, find_policy, Hello)


def restored(controller, stored):
    """What a start makes of it."""
    state, observer = State(controller.settings, find_policy(controller.settings.policy), Hello), Observer(None)
    missing = checkpoint.restore(state, observer, Tokens(), stored, find_policy)
    assert state.mismatches == 0
    return state, missing


def same(one, other):
    """The two states are equal, as far as they are stored."""
    assert checkpoint.shell(one) == checkpoint.shell(other)
    ours, theirs = one.core.state(), other.core.state()
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def test_what_was_followed_is_what_a_start_comes_to(tmp_path):
    """Round by round, while jobs come and end; also after the leader has stored its state."""

    async def story():
        async with serving(tmp_path / "state", jobs=3) as leader:
            database = Database(url(tmp_path / "state"))
            database.connect()
            follower = follower_of(leader)
            replayed = []
            for step in range(4):
                await leader.submit(JobRequest(command=("forever",), cpu_cores=0.5), "ann", "ann")
                await asyncio.sleep(0.05)
                if step == 2:
                    await leader.engine.store()
                before = follower.warm
                stored = database.read_now(lambda c, before=before: checkpoint.load(c, before))
                replayed.append(len(stored.events))
                follower.follow(database)
                assert follower.warm is not None
            database.close()
        last = Database(url(tmp_path / "state"))
        last.connect()
        cold = last.read_now(checkpoint.load)
        confirmed = last.read_now(follower.confirm)
        warm = last.read_now(lambda c: checkpoint.load(c, confirmed))
        same(restored(leader, cold)[0], restored(leader, warm)[0])
        last.close()
        # It went on where it was, and from the leader's own where that was later.
        assert max(replayed[1:]) < replayed[0]

    asyncio.run(story())


def test_what_decides_otherwise_is_not_followed(tmp_path):
    async def story():
        async with serving(tmp_path / "state", jobs=2) as leader:
            database = Database(url(tmp_path / "state"))
            database.connect()
            follower = follower_of(leader)
            follower.follow(database)
            decided = [row for row in database.read_now(checkpoint.load).events if row.digest]
            other = make_controller(tmp_path, "EASY", database=url(tmp_path / "state"))
            stranger = follower_of(other)
            stranger.follow(database)
            assert stranger.warm is None
            # Decisions that were recorded only later: as they were made here, and otherwise.
            right = tuple((row.sequence, row.digest) for row in decided)
            follower.warm = replace(follower.warm, missing=right)
            assert database.read_now(follower.confirm).missing == ()
            follower.warm = replace(follower.warm, missing=(*right[:-1], (right[-1][0], "f" * 64)))
            assert database.read_now(follower.confirm) is None
            database.close()

    asyncio.run(story())


def test_a_database_that_cannot_be_followed_yet_is_no_error(tmp_path):
    controller = make_controller(tmp_path)
    database = Database(url(tmp_path))
    database.connect()
    follower = follower_of(controller)
    follower.follow(database)
    assert follower.warm is None
    database.close()
