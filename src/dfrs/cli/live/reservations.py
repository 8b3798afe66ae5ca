"""`dfrs reserve` and `reservations`: nodes that are closed for maintenance, and when."""

from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, out_of, print_json
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.live.completing import complete_nodes, complete_reservations
from dfrs.cli.quantities import parse_instant, parse_seconds
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Reservation

TABLE_WIDTH = 120
"""Of the list where it is no terminal: a reason fits beside the times."""


@live
def reserve(
    client: "Client",
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NODE...", help="Names of nodes.", show_default=False, autocompletion=complete_nodes),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Close them then: 2026-12-01T08:00, +2h; default: now.", show_default=False),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Open them again after so long: 4h.", show_default=False)
    ] = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why, for all who look at the nodes.", show_default=False)
    ] = "",
    evacuate: Annotated[
        bool, typer.Option("--evacuate", help="At the start, queue again the jobs that are there.")
    ] = False,
    cancel: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ID",
            help="End this reservation; several times for more.",
            min=1,
            show_default=False,
            autocompletion=complete_reservations,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Reserve nodes for maintenance: they get nothing new from the start on, and are open again at the end.

    What runs there goes on, unless you evacuate them: then jobs that have tasks there are ended at the start and queued
    again, but for those submitted with --restart never. Nodes that were drained by hand stay so at the end.

    Examples:

        dfrs reserve node-2 --start 2026-12-01T08:00 --duration 4h --reason "new fans"

        dfrs reserve node-2 node-3 --duration 30m --evacuate

        dfrs reserve --cancel 3
    """
    if cancel:
        if names or start is not None or duration is not None or reason or evacuate:
            raise InputError("--cancel: ends a reservation, and the rest makes one: give it alone")
        _print([client.cancel_reservation(number) for number in cancel], as_json=as_json)
        return
    if not names:
        raise InputError("NODE: missing: name the nodes to reserve, or a reservation to end with --cancel")
    if duration is None:
        raise InputError("--duration: missing: say after how long they are open again, as 4h")
    made = client.reserve(
        *names,
        duration_s=parse_seconds(duration, "--duration"),
        start_at=None if start is None else parse_instant(start, "--start"),
        reason=reason,
        evacuate=evacuate,
    )
    _print([made], as_json=as_json)


def _print(reservations: "list[Reservation]", *, as_json: bool) -> None:
    from dfrs.cli.views.reservations import reservation_words

    if as_json:
        print_json([each.model_dump(mode="json") for each in reservations])
        return
    for each in reservations:
        out.print(reservation_words(each), soft_wrap=True)


@live
def reservations(client: "Client", as_json: Json = False) -> None:
    """List reservations of nodes that are on or to come, by their starts.

    Example: dfrs reservations
    """
    from dfrs.cli.views.reservations import reservation_table

    found = client.reservations()
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
    elif found:
        out_of(TABLE_WIDTH).print(reservation_table(found, client.cluster().now))
    else:
        out.print("no reservations")


VERBS = (Verb(reserve), Verb(reservations))
