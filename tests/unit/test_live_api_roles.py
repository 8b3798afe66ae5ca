"""Every route with every kind of token: who is let in, and who is turned away with 401 or 403."""

import httpx
import pytest
from fastapi.routing import APIRoute

from dfrs.live.api.routes import ApiSettings, create_app
from dfrs.live.protocol.resources import JobRequest, ReservationRequest
from tests.live_http import asked, bearer
from tests.live_service import FakeService

READERS, USERS, ADMINS = {"viewer", "user", "admin"}, {"user", "admin"}, {"admin"}

ROLES = {
    ("GET", "/api/v1/jobs"): READERS,
    ("POST", "/api/v1/jobs"): USERS,
    ("GET", "/api/v1/jobs/{job}"): READERS,
    ("PATCH", "/api/v1/jobs/{job}"): USERS,
    ("POST", "/api/v1/jobs/{job}/cancel"): USERS,
    ("POST", "/api/v1/jobs/{job}/hold"): USERS,
    ("POST", "/api/v1/jobs/{job}/release"): USERS,
    ("POST", "/api/v1/jobs/{job}/requeue"): USERS,
    ("GET", "/api/v1/jobs/{job}/explain"): READERS,
    ("GET", "/api/v1/jobs/{job}/start"): READERS,
    ("GET", "/api/v1/jobs/{job}/points"): READERS,
    ("GET", "/api/v1/jobs/{job}/output"): USERS,
    ("POST", "/api/v1/jobs/{job}/input"): USERS,
    ("POST", "/api/v1/jobs/{job}/programs"): USERS,
    ("GET", "/api/v1/nodes"): READERS,
    ("POST", "/api/v1/nodes/{node}/drain"): ADMINS,
    ("POST", "/api/v1/nodes/{node}/undrain"): ADMINS,
    ("GET", "/api/v1/reservations"): READERS,
    ("POST", "/api/v1/reservations"): ADMINS,
    ("POST", "/api/v1/reservations/{reservation}/cancel"): ADMINS,
    ("GET", "/api/v1/cluster"): READERS,
    ("GET", "/api/v1/activity"): READERS,
    ("GET", "/api/v1/timeseries"): READERS,
    ("GET", "/api/v1/gantt"): READERS,
    ("GET", "/api/v1/shadow"): READERS,
    ("GET", "/api/v1/snapshot"): READERS,
    ("GET", "/api/v1/log"): ADMINS,
    ("GET", "/api/v1/changes"): READERS,
    ("GET", "/api/v1/tokens"): ADMINS,
    ("POST", "/api/v1/tokens"): ADMINS,
    ("POST", "/api/v1/tokens/{token}/rebind"): ADMINS,
    ("POST", "/api/v1/tokens/{token}/revoke"): ADMINS,
    ("GET", "/api/v1/me"): READERS,
    ("GET", "/metrics"): READERS,
}
OPEN = {("GET", "/healthz")}
OF_SHARE_AGENTS = {("POST", "/agent/v1/shares")}  # role agent only; tested with the backend that has them
BODIES = {
    "/api/v1/jobs": {"command": ["true"]},
    "/api/v1/jobs/{job}": {"name": "other"},
    "/api/v1/tokens": {"user": "bob", "role": "user"},
    "/api/v1/reservations": {"nodes": ["node1"], "duration_s": 60},
    "/api/v1/jobs/{job}/input": {"writer": "0" * 16, "data": "eA=="},
    "/api/v1/jobs/{job}/programs": {"name": "0" * 16, "command": ["true"]},
}
OWNERS_ONLY = ("cancel", "hold", "release", "requeue", "output", "input", "programs")


def test_no_route_is_forgotten_here():
    app = create_app(FakeService(), page=None)
    found = {(method, route.path) for route in app.routes if isinstance(route, APIRoute) for method in route.methods}
    assert found == set(ROLES) | OPEN | OF_SHARE_AGENTS
    websockets = {route.path for route in app.routes if type(route).__name__ == "APIWebSocketRoute"}
    assert not websockets, "agents come in beside the routes, and have tests of their own"


async def submitted(service, user):
    (job,) = await service.submit(JobRequest(command=("./run", "--password=hunter2")), user, user)
    return job


async def reserved(service):
    return (await service.reserve(ReservationRequest(nodes=("node1",), duration_s=60), "root")).id


@pytest.mark.parametrize(("method", "path"), sorted(ROLES), ids=lambda value: value)
def test_each_role_on_each_route(method, path):
    async def test(service, client):
        good = {role: service.token("alice", role) for role in ("viewer", "user", "admin", "agent")}
        expired, revoked = service.token("alice", "admin", days=-1), service.token("alice", "admin")
        last = max(service.infos)
        await service.revoke_token(last, "x")
        for bad in (None, expired, revoked, "dfrs_unknown", "", "é"):
            job = await submitted(service, "alice")
            where = path.format(job=job, node="node1", token=last, reservation=await reserved(service))
            headers = [] if bad is None else [(b"authorization", f"Bearer {bad}".encode())]
            answer = await client.request(method, where, json=BODIES.get(path), headers=headers)
            assert (answer.status_code, list(answer.json())) == (401, ["detail"]), bad
            assert answer.headers["www-authenticate"].startswith("Bearer"), bad
        basic = await client.request(method, where, headers={"Authorization": f"Basic {good['admin']}"})
        assert basic.status_code == 401
        in_query = await client.request(method, f"{where}?token={good['admin']}&access_token={good['admin']}")
        assert in_query.status_code == 401
        for role, secret in good.items():
            job = await submitted(service, "alice")
            where = path.format(job=job, node="node1", token=last, reservation=await reserved(service))
            if path.endswith("/changes") and role in ROLES[method, path]:
                continue
            answer = await client.request(method, where, json=BODIES.get(path), headers=bearer(secret))
            wanted = {200, 201} if role in ROLES[method, path] else {403}
            assert answer.status_code in wanted, (role, answer.text)

    asked(test)


@pytest.mark.parametrize("action", OWNERS_ONLY)
@pytest.mark.parametrize(
    ("user", "role", "status"),
    [
        ("bob", "user", 403),
        ("alice", "viewer", 403),
        ("bob", "viewer", 403),
        ("alice", "user", 200),
        ("bob", "admin", 200),
    ],
)
def test_a_job_is_controlled_and_its_output_read_by_its_owner_and_admins(action, user, role, status):
    async def test(service, client):
        job = await submitted(service, "alice")
        before = service.job(job)
        method = "GET" if action == "output" else "POST"
        body, headers = BODIES.get(f"/api/v1/jobs/{{job}}/{action}"), bearer(service.token(user, role))
        answer = await client.request(method, f"/api/v1/jobs/{job}/{action}", json=body, headers=headers)
        assert answer.status_code == (201 if action == "programs" and status == 200 else status), answer.text
        assert ("the output" in answer.text) == (action == "output" and status == 200)
        assert (service.job(job) == before) == (status == 403 or action in {"output", "release", "input", "programs"})

    asked(test)


@pytest.mark.parametrize(
    ("user", "role", "status"), [("bob", "user", 403), ("alice", "viewer", 403), ("bob", "admin", 200)]
)
def test_a_job_is_changed_by_its_owner_and_admins(user, role, status):
    async def test(service, client):
        job = await submitted(service, "alice")
        body = {"time_limit_s": 60, "cpu_cores": None}
        answer = await client.request(
            "PATCH", f"/api/v1/jobs/{job}", json=body, headers=bearer(service.token(user, role))
        )
        assert answer.status_code == status, answer.text
        assert service.updates == ([(job, body)] if status == 200 else [])
        for wrong in ({"tasks": 2}, {"minimum_yield": None}, {"time_limit_s": 0}, {"name": "a\x1b"}):
            answer = await client.request(
                "PATCH", f"/api/v1/jobs/{job}", json=wrong, headers=bearer(service.token("alice", "user"))
            )
            assert answer.status_code == 422, wrong

    asked(test)


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/1", "/api/v1/jobs/1/explain", "/api/v1/jobs/1/hold"])
@pytest.mark.parametrize(
    ("user", "role", "sees"),
    [("alice", "user", True), ("root", "admin", True), ("bob", "user", False), ("alice", "viewer", False)],
)
def test_commands_are_for_owner_and_admins(path, user, role, sees):
    async def test(service, client):
        await submitted(service, "alice")
        method = "POST" if path.endswith("hold") else "GET"
        answer = await client.request(method, path, headers=bearer(service.token(user, role)))
        assert ("hunter2" in answer.text) == (sees if answer.is_success else False)

    asked(test)


def test_environments_are_shown_to_nobody():
    async def test(service, client):
        headers = bearer(service.token("root", "admin"))
        body = {"command": ["true"], "environment": {"KEY": "hunter2"}}
        shown = [await client.post("/api/v1/jobs", json=body, headers=headers)]
        shown += [await client.get(f"/api/v1/{path}", headers=headers) for path in ("jobs", "jobs/1", "jobs/1/explain")]
        assert service.requests[0].environment == {"KEY": "hunter2"}
        assert not any("hunter2" in answer.text for answer in shown)

    asked(test)


@pytest.mark.parametrize(("role", "status"), [("user", 403), ("admin", 201)])
def test_only_an_admin_submits_for_another(role, status):
    async def test(service, client):
        body = {"command": ["true"], "user": "carol"}
        answer = await client.post("/api/v1/jobs", json=body, headers=bearer(service.token("alice", role)))
        assert answer.status_code == status
        assert [job.user for job in service.by_id.values()] == (["carol"] if status == 201 else [])

    asked(test)


def test_a_user_may_name_themselves():
    async def test(service, client):
        body = {"command": ["true"], "user": "alice"}
        answer = await client.post("/api/v1/jobs", json=body, headers=bearer(service.token("alice", "user")))
        assert (answer.status_code, answer.json()) == (201, {"jobs": [1]})

    asked(test)


def test_a_token_is_made_used_and_ended():
    async def test(service, client):
        admin = bearer(service.token("root", "admin"))
        made = (await client.post("/api/v1/tokens", json={"user": "dave", "role": "user"}, headers=admin)).json()
        me = await client.get("/api/v1/me", headers=bearer(made["token"]))
        assert me.json() == {"user": "dave", "role": "user"}
        assert made["token"] not in (await client.get("/api/v1/tokens", headers=admin)).text
        ended = await client.post(f"/api/v1/tokens/{made['id']}/revoke", headers=admin)
        assert ended.json()["revoked"] is True
        assert (await client.get("/api/v1/me", headers=bearer(made["token"]))).status_code == 401

    asked(test)


@pytest.mark.parametrize(
    ("open_metrics", "client_host", "status"),
    [(False, "127.0.0.1", 401), (True, "127.0.0.1", 200), (True, "192.0.2.7", 401)],
)
def test_metrics_without_a_token_only_where_chosen_and_from_loopback(open_metrics, client_host, status):
    async def test(service, client):
        transport = httpx.ASGITransport(client._transport.app, client=(client_host, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://dfrs") as other:
            headers = {"X-Forwarded-For": "127.0.0.1"}
            assert (await other.get("/metrics", headers=headers)).status_code == status
            if open_metrics:
                wrong = await other.get("/metrics", headers=bearer("dfrs_wrong"))
                assert wrong.status_code == 401

    asked(test, settings=ApiSettings(open_metrics=open_metrics))


@pytest.mark.parametrize(
    ("route", "field", "value"),
    [
        ("input", "data", "not base64!"),
        ("input", "data", "é==="),
        ("input", "writer", "../../etc"),
        ("input", "program", "../0000000000000"),
        ("input", "signal", "KILL"),
        ("input", "offset", -1),
        ("programs", "name", "../../../../tmp/x"),
        ("programs", "command", ["a\0b"]),
        ("programs", "command", []),
        ("programs", "environment", {"DFRS_JOB_ID": "7"}),
        ("programs", "account", "root"),
    ],
)
def test_nothing_but_what_is_meant_reaches_a_node(route, field, value):
    async def test(service, client):
        job = await submitted(service, "alice")
        body = BODIES[f"/api/v1/jobs/{{job}}/{route}"] | {field: value}
        headers = bearer(service.token("alice", "user"))
        answer = await client.request("POST", f"/api/v1/jobs/{job}/{route}", json=body, headers=headers)
        assert (answer.status_code, answer.json()["detail"].count("\n")) == (422, 0), answer.text

    asked(test)
