"""Which nodes an agent's token admits, and with how much: the first that uses it, and no more than it offered then."""

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy import create_engine, text
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from dfrs.live.agent.agent import Agent, AgentRefusedError, AgentSettings
from dfrs.live.agent.connection import Server
from dfrs.live.api import agents
from dfrs.live.controller.revisions import migrate
from dfrs.live.errors import ConflictError, NotAdmittedError, NotFoundError, UnavailableError
from dfrs.live.protocol.resources import JobRequest, TokenInfo, TokenRequest
from dfrs.live.protocol.wire import Hello, from_controller
from dfrs.testing import InMemoryHosts, make_controller, until
from tests.live_fakes import FakeDriver
from tests.live_http import bearer, served
from tests.unit.test_live_api_agents import hello as hello_text

GIB = 1 << 30


def hello(node="left", host="h1", cpus=4.0, memory_bytes=8 * GIB):
    return Hello.model_validate_json(hello_text(node, host=host, cpus=cpus, memory_bytes=memory_bytes))


class Silent:
    """A connection on which nothing is said."""

    def send(self, message):
        pass

    def close(self, reason):
        pass


def with_controller(tmp_path, story, **settings):
    async def run():
        controller = make_controller(tmp_path, clock=InMemoryHosts().clock, **settings)
        await controller.start()
        try:
            await story(controller)
        finally:
            await controller.stop()

    asyncio.run(run())


async def token(controller, **more):
    made = await controller.create_token(TokenRequest(user="agents", role="agent", **more), "root")
    return made.token


async def joined(controller, said):
    """Attach an admitted node, and wait until it is in the record."""
    attachment = controller.engine.backend.attach(said, Silent())
    await until(lambda: said.node in {node.name for node in controller.nodes()})
    return attachment


def test_a_token_is_bound_to_the_first_node_that_uses_it(tmp_path):
    async def story(controller):
        secret = await token(controller)
        assert await controller.admit(hello(), secret, here=False) == hello()
        assert await controller.admit(hello(), secret, here=False) == hello()
        with pytest.raises(NotAdmittedError, match=r"token 1: is bound to node left, and this is node right; .*create"):
            await controller.admit(hello("right"), secret, here=False)
        with pytest.raises(NotAdmittedError, match=r"to node left on another host than this, h2; .*rebind 1"):
            await controller.admit(hello(host="h2"), secret, here=True)
        (info,) = controller.tokens()
        assert (info.node, info.host, info.cpus, info.memory_bytes) == ("left", "h1", 4.0, 8 * GIB)
        assert "admit" in {each.action for each in controller.activity()}

    with_controller(tmp_path, story)


def test_of_two_nodes_that_come_at_once_one_gets_it(tmp_path):
    async def story(controller):
        secret = await token(controller)
        came = [controller.admit(hello(name), secret, here=False) for name in ("left", "right")]
        answers = await asyncio.gather(*came, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Hello", "NotAdmittedError"]

    with_controller(tmp_path, story)


def test_a_binding_outlives_the_controller(tmp_path):
    secrets = []

    async def first(controller):
        secrets.append(await token(controller))
        await controller.admit(hello(), secrets[0], here=False)

    async def second(controller):
        with pytest.raises(NotAdmittedError):
            await controller.admit(hello("right"), secrets[0], here=False)

    with_controller(tmp_path, first)
    with_controller(tmp_path, second)


def test_a_binding_that_cannot_be_written_is_none(tmp_path, monkeypatch):
    async def story(controller):
        secret = await token(controller)

        async def write(changes):
            raise UnavailableError("the database is full")

        with monkeypatch.context() as broken:
            broken.setattr(controller.database, "write", write)
            with pytest.raises(UnavailableError):
                await controller.admit(hello(), secret, here=False)
        assert controller.tokens()[0].node is None
        await controller.admit(hello("right"), secret, here=False)

    with_controller(tmp_path, story)


def test_a_node_gets_no_more_than_it_was_admitted_with(tmp_path):
    async def story(controller):
        secret = await token(controller)
        await controller.admit(hello(), secret, here=False)
        less = hello(cpus=2.0)
        assert await controller.admit(less, secret, here=False) == less
        capped = await controller.admit(hello(cpus=64.0, memory_bytes=9 * GIB), secret, here=False)
        assert (capped.cpus, capped.memory_bytes) == (4.0, 8 * GIB)
        await joined(controller, capped)
        (node,) = controller.nodes()
        assert (node.cpus, node.memory_bytes) == (4.0, 8 * GIB)
        assert node.notes == (
            "offers 64 cores and 9.0 GiB, and is admitted with 4 cores and 8.0 GiB; to admit more: dfrs token rebind 1",
        )

    with_controller(tmp_path, story)


def test_a_node_gets_no_more_named_resources_than_it_was_admitted_with(tmp_path):
    async def story(controller):
        secret = await token(controller)
        two = hello().model_copy(update={"resources": {"gpu": 2}})
        assert (await controller.admit(two, secret, here=False)).resources == {"gpu": 2}
        assert controller.tokens()[0].resources == {"gpu": 2}
        assert (await controller.admit(hello(), secret, here=False)).resources == {}
        many = hello().model_copy(update={"resources": {"gpu": 1000, "licence-x": 5}})
        capped = await controller.admit(many, secret, here=False)
        assert capped.resources == {"gpu": 2}
        assert capped.abilities.notes == (
            "offers 4 cores and 8.0 GiB and 1000 gpu and 5 licence-x, and is admitted with 4 cores and 8.0 GiB and "
            "2 gpu; to admit more: dfrs token rebind 1",
        )
        await controller.rebind_token(1, "root")
        assert await controller.admit(many, secret, here=False) == many

    async def again(controller):
        assert controller.tokens()[0].resources == {"gpu": 1000, "licence-x": 5}

    with_controller(tmp_path, story)
    with_controller(tmp_path, again)


def test_a_node_that_was_admitted_before_resources_were_recorded_is_admitted_with_those_it_has(tmp_path):
    async def story(controller):
        secret = await token(controller)
        await controller.admit(hello(), secret, here=False)
        (info,) = controller.tokens()
        controller._tokens.bind(info.model_copy(update={"resources": None}))
        for count in (2, 4):
            offered = hello().model_copy(update={"resources": {"gpu": count}})
            assert (await controller.admit(offered, secret, here=False)).resources == {"gpu": 2}

    with_controller(tmp_path, story)


@pytest.mark.parametrize("host", ["kept-to-itself", "h2"])
def test_who_has_an_unused_token_cannot_be_a_node_that_is_known(tmp_path, host):
    async def story(controller):
        here, thief = await token(controller, local=True), await token(controller)
        await joined(controller, await controller.admit(hello(host="kept-to-itself"), here, here=True))
        for secret in (here, thief):
            with pytest.raises(NotAdmittedError) as refused:
                await controller.admit(hello(host=host), secret, here=False)
            assert "kept-to-itself" not in str(refused.value)
        assert controller.tokens()[1].node is None
        await controller.admit(hello("right", host=host), thief, here=False)

    with_controller(tmp_path, story)


def test_a_token_that_is_made_for_a_known_node_admits_it(tmp_path):
    async def story(controller):
        old = await token(controller)
        await joined(controller, await controller.admit(hello(), old, here=False))
        await controller.revoke_token(1, "root")
        other = await token(controller)
        with pytest.raises(NotAdmittedError, match=r"left: is known, and token 2 was made for agents; .*create left"):
            await controller.admit(hello(), other, here=False)
        made = await controller.create_token(TokenRequest(user="left", role="agent"), "root")
        assert await controller.admit(hello(), made.token, here=False) == hello()

    with_controller(tmp_path, story)


def test_an_operator_lets_a_token_be_bound_anew(tmp_path):
    async def story(controller):
        secret = await token(controller)
        await controller.admit(hello(), secret, here=False)
        await controller.rebind_token(1, "root")
        with pytest.raises(NotAdmittedError, match="bound to node left"):
            await controller.admit(hello("right"), secret, here=False)
        more = hello(host="h2", cpus=64.0)
        assert await controller.admit(more, secret, here=False) == more
        with pytest.raises(NotAdmittedError, match="on another host than this, h1"):
            await controller.admit(hello(), secret, here=False)
        user = await controller.create_token(TokenRequest(user="ann", role="user"), "root")
        with pytest.raises(ConflictError, match="role user"):
            await controller.rebind_token(user.id, "root")
        with pytest.raises(NotFoundError):
            await controller.rebind_token(99, "root")

    with_controller(tmp_path, story)


def test_a_node_with_a_token_is_nobody_elses(tmp_path):
    async def story(controller):
        first, second = await token(controller), await token(controller)
        here = await token(controller, local=True)
        await controller.admit(hello(), first, here=False)
        for other in (second, here):
            with pytest.raises(NotAdmittedError, match="node left: is admitted with token 1, and this is token"):
                await controller.admit(hello(), other, here=True)
        await controller.revoke_token(1, "root")
        with pytest.raises(NotAdmittedError, match="expired or revoked"):
            await controller.admit(hello(), first, here=False)
        await controller.admit(hello(), second, here=False)

    with_controller(tmp_path, story)


def test_the_token_of_the_controllers_machine_admits_all_nodes_there_and_none_elsewhere(tmp_path):
    async def story(controller):
        secret = await token(controller, local=True)
        for said in (hello("a"), hello("b", host="h2"), hello("a", host="h3", cpus=64.0)):
            assert await controller.admit(said, secret, here=True) == said
        with pytest.raises(NotAdmittedError, match=r"token 1: is for nodes on the controller's machine; .* create a"):
            await controller.admit(hello("a"), secret, here=False)

    with_controller(tmp_path, story)


def unbound(database):
    """Have a database as the version before wrote it."""
    engine = create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        connection.execute(text("UPDATE tokens SET local = NULL"))
        connection.commit()
    engine.dispose()


def test_tokens_from_before_admit_the_nodes_that_were_known_and_are_bound_at_first_use(tmp_path):
    secrets = []
    database = {"database": f"sqlite:///{tmp_path / 'dfrs.db'}"}

    async def before(controller):
        secrets.extend([await token(controller), await token(controller)])
        for name in ("a", "b"):
            await joined(controller, hello(name, host=f"of-{name}"))

    async def after(controller):
        shared, unused = secrets
        for name in ("a", "b"):
            capped = await controller.admit(hello(name, host=f"of-{name}", cpus=64.0), shared, here=False)
            assert capped.cpus == 4.0
        here = hello("node-1", cpus=64.0)
        assert await controller.admit(here, shared, here=True) == here
        await controller.admit(hello("c"), unused, here=False)
        with pytest.raises(NotAdmittedError, match="is bound to node c"):
            await controller.admit(hello("d"), unused, here=False)

    with_controller(tmp_path, before, **database)
    unbound(tmp_path / "dfrs.db")
    with_controller(tmp_path, after, **database)


def test_tables_from_before_get_the_columns(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'dfrs.db'}")
    with engine.connect() as connection:
        migrate(connection, "0002")
    with engine.connect() as connection:
        row = "(1, 'h', 'agents', 'agent', 0, 9e9, 0)"
        connection.execute(
            text(f"INSERT INTO tokens (id, hash, owner, role, created_at, expires_at, revoked) VALUES {row}")
        )
        connection.commit()
    with engine.connect() as connection:
        migrate(connection)
    engine.dispose()

    async def story(controller):
        (info,) = controller.tokens()
        assert info == TokenInfo(id=1, user="agents", role="agent", created_at=0, expires_at=9e9, revoked=False)

    with_controller(tmp_path, story, database=f"sqlite:///{tmp_path / 'dfrs.db'}")


def settings(server, node):
    return AgentSettings(
        server=server, node=node, host="h1", cpus=1.0, memory_bytes=GIB, version="1", first_retry_s=0.05, open_s=5.0
    )


def test_a_stranger_is_told_why_and_gets_no_command(tmp_path):
    """Both ends say it in one line; what jobs run and their environments go to the admitted node only."""

    async def story():
        controller = make_controller(tmp_path)
        async with served(controller, agent_door=controller.engine.backend) as (address, _, _):
            secret = await token(controller)
            server = Server(url=f"http://127.0.0.1:{address.port}", token=secret)
            admitted = asyncio.create_task(Agent(FakeDriver(), settings(server, "left")).run())
            await until(lambda: [node.name for node in controller.nodes() if node.connected] == ["left"])
            request = JobRequest(command=("secret-command",), environment={"KEY": "secret-value"}, memory_bytes=1 << 20)
            await controller.submit(request, "ann", "ann")
            url = f"ws://127.0.0.1:{address.port}/agent/v1"
            async with connect(url, additional_headers=bearer(secret)) as thief:
                await thief.send(hello_text("thief", cpus=4096.0))
                heard = [text async for text in heard_from(thief)]
            (only,) = map(from_controller, heard)
            assert (only.kind, only.retry) == ("refuse", False)
            with pytest.raises(AgentRefusedError, match="refuses node right: token 1: is bound to node left") as error:
                await Agent(FakeDriver(), settings(server, "right")).run()
            assert "\n" not in str(error.value)
            assert [node.name for node in controller.nodes()] == ["left"]
            admitted.cancel()
            await asyncio.gather(admitted, return_exceptions=True)

    with capture_logs() as logged:
        asyncio.run(story())
    (line,) = [entry for entry in logged if entry["event"] == "agent cut off" and entry["node"] == "thief"]
    assert line["why"].startswith("token 1: is bound to node left, and this is node thief")


async def heard_from(socket):
    """All that comes until it is closed."""
    with suppress(ConnectionClosed):
        while True:
            yield await socket.recv()


class Socket:
    def __init__(self, client, server, near=()):
        self.client = None if client is None else type("Address", (), {"host": client})()
        self.scope = {"server": server}
        chosen = type("Settings", (), {"near": frozenset(near)})()
        self.app = type("App", (), {"state": type("State", (), {"settings": chosen})()})()


@pytest.mark.parametrize(
    ("client", "server", "near", "here"),
    [
        ("127.0.0.1", ("127.0.0.1", 7070), (), True),
        ("10.0.0.1", ("10.0.0.1", 7070), (), True),
        ("10.0.0.2", ("10.0.0.1", 7070), (), False),
        ("10.77.1.1", ("10.77.0.1", 7070), ("10.77.0.1",), True),
        (None, None, (), True),
        ("fd00::2", ("fd00::1", 7070), (), False),
    ],
)
def test_who_is_on_the_controllers_machine(client, server, near, here):
    assert agents.is_here(Socket(client, server, near)) is here
