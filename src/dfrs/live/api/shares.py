"""The way of share agents: a report, and in the answer the shares that are wanted by then."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response

from dfrs.live.api.agents import is_here
from dfrs.live.api.answers import reply
from dfrs.live.api.bodies import BodyLimits, read
from dfrs.live.api.security import AGENTS, Allow, Caller
from dfrs.live.errors import NotAdmittedError
from dfrs.live.protocol.share_door import ShareDoor
from dfrs.live.protocol.shares import ShareReport

REPORT = BodyLimits(bytes=2 << 20, marks=300_000)

router = APIRouter()


@router.post("/agent/v1/shares", include_in_schema=False)
async def shares(request: Request, caller: Annotated[Caller, Depends(Allow(AGENTS))]) -> Response:
    """A report of the share agent of one node: role agent only."""
    door: ShareDoor | None = request.app.state.share_door
    if door is None:
        raise HTTPException(404, "shares: this controller runs jobs by its own agents")
    report = await read(request, ShareReport, REPORT)
    try:
        await caller.service.admit(door.facts(report.node), caller.secret, here=is_here(request))
    except NotAdmittedError as error:
        raise HTTPException(403, str(error)) from None
    return reply(await door.exchange(report))
