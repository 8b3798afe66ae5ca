"""What the REST API answers: filters, pages, problems in one line, and nothing that upsets it."""

import asyncio
import json

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dfrs.live.api import routes
from dfrs.live.api.bodies import SUBMISSION
from dfrs.live.api.routes import ApiSettings, create_app
from dfrs.live.api.security import Pace
from dfrs.live.client import Client, DeniedError, Endpoint
from dfrs.live.errors import UncertainError
from dfrs.live.protocol.resources import JobRequest, JobState
from tests.live_http import asked, bearer
from tests.live_service import FakeService

ODD = [
    0,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**4299,
    "x",
    "1.0",
    "1e3",
    "NaN",
    "%00",
    "%ff",
    "%ED%A0%80",
    "٣",
    "+1",
    "%20",
    "..",
    "%2e%2e",
    "null",
]


def with_admin(test, **options):
    async def run(service, client):
        client.headers.update(bearer(service.token("root", "admin")))
        await test(service, client)

    asked(run, **options)


def line(answer):
    """The problem's one line."""
    assert answer.headers["content-type"] == "application/json"
    (detail,) = answer.json().values()
    assert "\n" not in detail
    assert detail
    return detail


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "path",
    [
        "jobs/{}",
        "jobs/{}/explain",
        "jobs/{}/start",
        "jobs/{}/points",
        "jobs/{}/output",
        "jobs?before={}",
        "jobs?limit={}",
        "jobs?state={}",
        "jobs?user={}",
        "jobs/1/output?offset={}",
        "jobs/1/output?rank={}",
        "jobs/1/output?limit={}",
        "points?since={}",
        "bars?since={}",
        "activity?after={}",
        "activity?job={}",
        "shadow?limit={}",
        "{}",
    ],
)
def test_odd_values_are_refused_in_one_line_and_never_upset_it(path, odd):
    async def test(service, client):
        await service.submit(JobRequest(command=("true",)), "root", "root")
        answer = await client.get(f"/api/v1/{path.format(odd)}")
        assert answer.status_code < 500
        if answer.is_error:
            assert len(line(answer)) < 400

    with_admin(test)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "body: "),
        (b"{", "body: "),
        (b"[]", "body: "),
        (b"\xff\xfe", "body: "),
        (b"null", "body: "),
        (b"[" * 100_000, "body: "),
        (b'{"command": ["a"], "x": 1}', "x: "),
        (b'{"command": []}', "command: "),
        (b'{"command": [""]}', "command: "),
        (b'{"command": ["a\\u0000"]}', "command: "),
        (b'{"command": ["\\ud800"]}', "body: "),
        (b'{"command": "a"}', "command: "),
        (b'{"command": ["a"], "tasks": 1e999}', "tasks: "),
        (b'{"command": ["a"], "tasks": 99999999999999999999}', "tasks: "),
        (b'{"command": ["a"], "tasks": "1"}', "tasks: "),
        (b'{"command": ["a"], "cpu_cores": NaN}', "cpu_cores: "),
        (b'{"command": ["a"], "cpu_cores": 1e400}', "cpu_cores: "),
        (b'{"command": ["a"], "after": [1e99]}', "after"),
        (b'{"command": ["a"], "after": [%d]}' % 2**64, "after.0: "),
        (b'{"command": ["a"], "after": [0]}', "after.0: "),
        (b'{"command": ["a"], "name": "a\\nb"}', "name: "),
        (b'{"command": ["a"], "user": "../root"}', "user: "),
        (b'{"command": ["a"], "directory": "relative"}', "directory: "),
        (b'{"command": ["a"], "environment": {"DFRS_RANK": "hunter2"}}', "environment: "),
        (b'{"command": ["a"], "environment": {"A": {"hunter2": 1}}}', "environment.A: "),
    ],
)
def test_what_is_wrong_with_a_job_is_named_by_field_and_rule(body, words):
    async def test(service, client):
        answer = await client.post("/api/v1/jobs", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert line(answer).startswith(words)
        assert "hunter2" not in answer.text
        assert not service.by_id

    with_admin(test)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        (None, 201),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/x-www-form-urlencoded", 415),
        ("é", 415),
        (";;;", 415),
    ],
)
def test_only_json_is_taken(content_type, status):
    async def test(service, client):
        headers = [] if content_type is None else [(b"content-type", content_type.encode())]
        assert (await client.post("/api/v1/jobs", content=b'{"command": ["a"]}', headers=headers)).status_code == status

    with_admin(test)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_has_a_limit_whether_or_not_it_says_its_length(declared):
    async def chunks():
        for _ in range(10):
            yield b" " * (1 << 20)

    async def test(service, client):
        content = b" " * (SUBMISSION.bytes + 1) if declared else chunks()
        answer = await client.post("/api/v1/jobs", content=content)
        assert answer.status_code == 413
        assert "2097152" in line(answer)

    with_admin(test)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "BREW"])
def test_other_methods_are_not_allowed_and_it_says_which_are(method):
    async def test(service, client):
        answer = await client.request(method, "/api/v1/jobs")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, POST"

    with_admin(test)


@pytest.mark.parametrize("path", ["jobs?stat=running", "cluster?x", "me?=1", "jobs/1/output?Rank=1"])
def test_a_parameter_that_does_not_exist_is_refused(path):
    async def test(service, client):
        answer = await client.get(f"/api/v1/{path}")
        assert answer.status_code == 422
        assert "there is no such parameter" in line(answer)

    with_admin(test)


def test_filters_and_pages():
    async def test(service, client):
        for user in ("alice", "bob") * 3:
            await service.submit(JobRequest(command=("true",)), user, user)
        await service.cancel(2, "x")

        async def ids(query):
            return [job["id"] for job in (await client.get(f"/api/v1/jobs?{query}")).json()]

        assert await ids("") == [6, 5, 4, 3, 1]
        assert await ids("user=alice") == [5, 3, 1]
        assert await ids("state=cancelled") == [2]
        assert await ids("state=cancelled&state=waiting&limit=3&before=4") == [3, 2, 1]
        assert await ids("user=nobody") == []

    with_admin(test)


def test_problems_have_their_status():
    async def test(service, client):
        await service.submit(JobRequest(command=("true",)), "root", "root")
        assert (await client.post("/api/v1/jobs/1/cancel")).json()["state"] == "cancelled"
        again = await client.post("/api/v1/jobs/1/cancel")
        assert (again.status_code, line(again)) == (409, "job 1: has ended")
        for path in ("jobs/9/cancel", "nodes/none/drain", "tokens/9/revoke"):
            assert (await client.post(f"/api/v1/{path}")).status_code == 404
        service.most_tasks = 1
        never = await client.post("/api/v1/jobs", json={"command": ["a"], "tasks": 2})
        assert (never.status_code, line(never)) == (422, "tasks: 2: no set of nodes has room")
        service.unavailable = True
        later = await client.post("/api/v1/jobs", json={"command": ["a"]})
        assert later.status_code == 503
        assert int(later.headers["retry-after"]) > 0
        assert line(later) == "the database cannot be written: disk full"

        async def lost(job, by):
            raise UncertainError(f"job {job}: it may have been done")

        service.cancel = lost
        unknown = await client.post("/api/v1/jobs/1/cancel")
        assert (unknown.status_code, line(unknown)) == (504, "job 1: it may have been done")
        assert "retry-after" not in unknown.headers

    with_admin(test)


def test_a_failure_of_the_controller_is_one_line_without_its_words():
    async def test(service, client):
        def broken():
            raise RuntimeError("secret hunter2")

        service.cluster = broken
        answer = await client.get("/api/v1/cluster")
        assert answer.status_code == 500
        assert "hunter2" not in line(answer)

    with_admin(test)


def test_health_needs_no_token_and_says_what_is_wrong():
    async def test(service, client):
        well = await client.get("/healthz")
        assert (well.status_code, well.text) == (200, "well\n")
        service.wrong = "the database cannot be written"
        ill = await client.get("/healthz")
        assert (ill.status_code, line(ill)) == (503, "the database cannot be written")

    asked(test)


def test_metrics_are_what_prometheus_reads():
    async def test(service, client):
        await client.post("/api/v1/jobs", json={"command": ["a"]})
        answer = await client.get("/metrics")
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }
        assert found["dfrs_jobs", "waiting"] == 1
        assert found["dfrs_jobs", "failed"] == 0
        assert found["dfrs_minimum_yield",] == 0.25
        assert ("dfrs_median_yield",) not in found
        assert found["dfrs_submissions_total",] == 1
        assert found["dfrs_decisions_total",] == 7

    with_admin(test)


def test_the_log_is_one_object_a_line():
    async def test(service, client):
        service.log_size = 20_000
        answer = await client.get("/api/v1/log")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        rows = [json.loads(row) for row in answer.text.splitlines()]
        assert rows[0] == {"format": "dfrs-log/1"}
        assert [row["time_s"] for row in rows[1:]] == list(range(20_000))

    with_admin(test)


def test_a_user_may_change_jobs_only_so_fast_and_an_admin_as_they_like(monkeypatch):
    monkeypatch.setattr(routes, "changes_pace", lambda: Pace(0.01, at_once=3.0, what="changes of jobs", instead="wait"))

    async def test(service, client):
        for user in ("alice", "bob"):
            await client.post("/api/v1/jobs", json={"command": ["a"], "user": user})

        async def changes(user, role, job):
            headers = bearer(service.token(user, role))
            verbs = ["hold", "release", "hold", "release"]
            answers = [await client.post(f"/api/v1/jobs/{job}/{verb}", headers=headers) for verb in verbs]
            return answers[-1], [answer.status_code for answer in answers]

        last, statuses = await changes("alice", "user", 1)
        assert statuses == [200] * 3 + [429]
        assert line(last) == "changes of jobs: this token may make 0.01 a second; wait"
        assert (await changes("bob", "user", 2))[1] == [200] * 3 + [429]
        assert (await changes("root", "admin", 1))[1][-1] != 429

    with_admin(test)


def test_a_token_may_submit_only_so_fast_where_that_is_limited():
    async def test(service, client):
        statuses = [(await client.post("/api/v1/jobs", json={"command": ["a"]})) for _ in range(12)]
        assert [answer.status_code for answer in statuses] == [201] * 5 + [429] * 7
        assert int(statuses[-1].headers["retry-after"]) >= 1
        line(statuses[-1])
        other = bearer(service.token("alice", "user"))
        assert (await client.post("/api/v1/jobs", json={"command": ["a"]}, headers=other)).status_code == 201

    with_admin(test, settings=ApiSettings(submissions_per_s=0.5))


def test_the_page_loads_nothing_from_elsewhere(tmp_path):
    (tmp_path / "index.html").write_text("<!doctype html><title>dfrs</title>")
    (tmp_path / "main.js").write_text("export {}")
    (tmp_path.parent / "secret").write_text("hunter2")

    async def test(service, client):
        for path in ("/", "/static/main.js"):
            answer = await client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await client.head("/")).status_code == 200
        for path in ("/static/../secret", "/static/%2e%2e/secret", "/static/nothing.js", "/docs", "/redoc"):
            answer = await client.get(path)
            assert answer.status_code == 404, path
            assert "hunter2" not in answer.text
        assert (await client.get("/api/v1/openapi.json")).status_code == 200

    asked(test, page=tmp_path)


def test_the_document_is_complete():
    document = create_app(FakeService(), page=None).openapi()
    operations = [(path, operation) for path, methods in document["paths"].items() for operation in methods.values()]
    names = [operation["operationId"] for _, operation in operations]
    assert len(names) == len(set(names)) >= 20
    for path, operation in operations:
        assert operation["description"].endswith("."), path
        assert operation["tags"], path
        if path != "/healthz":
            assert operation["security"] == [{"bearer": []}], path
            assert {"401", "403", "422", "503", "504"} <= set(operation["responses"]), path
        for name, parameter in ((p["name"], p) for p in operation.get("parameters", [])):
            assert "description" in parameter or name in {"limit", "stream"}, (path, name)
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    example = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert JobRequest.model_validate(example).tasks == 4


def test_the_client_of_the_command_line_understands_it():
    service = FakeService()
    service.add_node("node1")
    app = create_app(service, page=None)

    class Transport(httpx.BaseTransport):
        """Each request through the application, on an event loop of its own."""

        def handle_request(self, request):
            async def run():
                answer = await httpx.ASGITransport(app).handle_async_request(request)
                return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())

            return asyncio.run(run())

    def client(user, role):
        return Client(Endpoint(url="http://dfrs", token=service.token(user, role)), transport=Transport())

    alice, viewer, root = client("alice", "user"), client("wall", "viewer"), client("root", "admin")
    assert alice.submit(JobRequest(command=("true",), array=3, name="a")) == [1, 2, 3]
    assert [job.id for job in viewer.jobs(user="alice", states=[JobState.WAITING], limit=2)] == [3, 2]
    assert (viewer.job(1).command, alice.job(1).command) == ((), ("true",))
    alice.cancel(1)
    assert alice.job(1).state is JobState.CANCELLED
    with pytest.raises(DeniedError):
        viewer.cancel(2)
    assert alice.output(2).text == "the output of job 2"
    assert alice.explain(2).now == "it waits"
    root.drain("node1")
    assert [node.state for node in root.nodes()] == ["draining"]
    assert next(json.loads(row) for row in root.log()) == {"format": "dfrs-log/1"}
    assert viewer.me() == {"user": "wall", "role": "viewer"}
    assert viewer.cluster().decisions == 7
    assert [h.sequence for h in viewer.activity(after=1)] == [2]
