"""The API against its own document: whatever a client sends, the answer is one that the document promises."""

import itertools
import time

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from dfrs.live.api.refused_tokens import RefusedTokens
from dfrs.live.api.routes import create_app
from dfrs.live.protocol.resources import DEPENDENCIES
from tests.live_service import FakeService

ENDLESS = "/api/v1/changes"
"""Its answer has no end, so it has tests of its own."""
REFUSED = (400, 401, 403, 404, 409, 413, 415, 422)


class AnyPresent(FakeService):
    """Which nodes there are and what time it is are no part of the document."""

    async def reserve(self, request, by):
        made = self.made.make(request.model_copy(update={"start_at": None}), by, time.time(), request.nodes)
        self.made.put(made)
        return made


SERVICE = AnyPresent()
ADMIN = SERVICE.token("root", "admin")
OTHERS = itertools.cycle([SERVICE.token("alice", "user"), SERVICE.token("wall", "viewer")])


def application():
    """The API. Its document says nothing of lengths that would take hundreds of megabytes to pass.

    Bad tokens, of which the tests send many, are answered at once.
    """
    app = create_app(SERVICE, page=None)
    app.state.refused = RefusedTokens(app.state.meters, longest_s=0.0)
    schemas = app.openapi()["components"]["schemas"]
    job = schemas["JobRequest"]["properties"]
    for each in (job, schemas["ProgramRequest"]["properties"]):
        command, variables = each["command"], each["environment"]
        for texts in (command["items"], *command["prefixItems"], variables["additionalProperties"]):
            del texts["maxLength"]
        del command["maxItems"]
        del variables["maxProperties"]
    for fields in (job, schemas["JobUpdate"]["properties"]):
        for name in DEPENDENCIES:
            del fields[name]["maxItems"]
    del schemas["InputRequest"]["properties"]["data"]["maxLength"]
    return app


CONFIG = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": list(REFUSED)}}})
schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", application(), config=CONFIG).exclude(path=ENDLESS)


def with_whole_numbers(body):
    """To a schema 1.0 is an integer, as 1 is; the API takes only the second, as it is a different text."""
    if isinstance(body, dict):
        return {name: with_whole_numbers(value) for name, value in body.items()}
    if isinstance(body, list):
        return [with_whole_numbers(value) for value in body]
    return int(body) if isinstance(body, float) and body.is_integer() else body


@schema.parametrize()
@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_every_route_answers_as_its_document_says(case):
    if len(SERVICE.by_id) > 2000:
        SERVICE.by_id.clear()
    if not SERVICE.nodes_by_name:
        SERVICE.add_node("node1")
    case.body = with_whole_numbers(case.body)
    for token in (ADMIN, next(OTHERS)):
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"})


def test_all_routes_of_the_document_are_tried():
    tried = {operation.ok().path for operation in schema.get_all_operations()}
    assert tried | {ENDLESS} == set(schema.raw_schema["paths"])
    assert len(tried) >= 20
