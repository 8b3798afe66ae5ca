"""Reservations of nodes as text."""

from collections.abc import Iterable
from datetime import datetime

from rich.table import Table
from rich.text import Text

from dfrs.live.protocol.resources import Reservation
from dfrs.model.text import visible

MOST_NAMED = 3
"""Nodes of a reservation that are named."""


def reservation_words(reservation: Reservation) -> Text:
    """One in a line, as whoever made or cancelled it is told."""
    begin = f"reservation {reservation.id}: {', '.join(visible(name) for name in reservation.nodes)}"
    ended = " is cancelled" if reservation.cancelled else ""
    return Text(f"{begin}, {span(reservation)}{ended}")


def reservation_table(reservations: Iterable[Reservation], now: float) -> Table:
    """A row a reservation."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for heading in ("id", "nodes", "when", "state", "by", "reason"):
        table.add_column(heading, justify="right" if heading == "id" else "left", no_wrap=heading != "reason")
    for each in reservations:
        more = len(each.nodes) - MOST_NAMED
        names = ", ".join(visible(name) for name in each.nodes[:MOST_NAMED])
        state = "on" if each.is_on(now) else "to come"
        table.add_row(
            str(each.id),
            Text(f"{names} and {more} more" if more > 0 else names),
            span(each),
            state,
            Text(visible(each.by)),
            Text(" ".join(filter(None, [visible(each.reason), "(evacuates)" if each.evacuate else ""]))),
        )
    return table


def span_and_reason(reservation: Reservation) -> str:
    """From when until when, and why if that was said."""
    said = f": {visible(reservation.reason)}" if reservation.reason else ""
    return f"{span(reservation)}{said}"


def span(reservation: Reservation) -> str:
    """From when until when, in local time; the day once if it is the same."""
    begin, end = _minute(reservation.start_at), _minute(reservation.end_at)
    same = begin[:10] == end[:10]
    return f"{begin} to {end[11:] if same else end}"


def _minute(instant: float) -> str:
    return datetime.fromtimestamp(instant).strftime("%Y-%m-%d %H:%M")
