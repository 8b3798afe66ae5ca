"""The dashboard's files, as they lie in a directory, allowed to load nothing from anywhere else."""

from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from dfrs.live.api.answers import problem

PAGE = Path(__file__).parent / "page"
"""The dashboard."""
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}
_RAW = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]


class _Files(StaticFiles):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a file with the headers of the page."""

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_RAW]
            await send(message)

        await super().__call__(scope, receive, send_with)


def add_page(app: FastAPI, page: Path | None) -> None:
    """Serve `page`/index.html at / and its files below /static; without a page, say where the API is."""

    async def index(_request: Request) -> Response:
        if page is None or not (page / "index.html").is_file():
            return problem(404, "this controller has no page; its API is described in /api/v1/openapi.json")
        return FileResponse(page / "index.html", headers=_HEADERS, media_type="text/html")

    app.add_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    if page is not None:
        app.mount("/static", _Files(directory=page), name="page")
