"""Times as people read them: `2+03:04:05` is two days, three hours, four minutes and five seconds."""

import math
import re
from collections.abc import Sequence

from dfrs.model.errors import InputError

_STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)

_CLOCK = re.compile(
    r"(?:(?P<days>\d+)[-+d])?(?P<hours>\d{1,2}):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d(?:\.\d+)?))?"
)


def clock(time_s: float, *, short: bool = False) -> str:
    """`d+hh:mm:ss`, rounded to a second; `short` leaves out seconds and days that are zero."""
    whole = round(abs(time_s))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    sign = "-" if time_s < 0 and whole else ""
    if short:
        text = f"{hours:02d}:{minutes:02d}" + (f":{seconds:02d}" if seconds else "")
        return sign + (f"{days}+{text}" if days else text)
    return f"{sign}{days}+{hours:02d}:{minutes:02d}:{seconds:02d}"


def parse_time(text: str, field: str = "time") -> float:
    """Seconds: `5400`, `1:30`, `01:30:00`, `2-03:04:05` or `2+03:04:05`. Raises InputError."""
    try:
        seconds = float(text)
    except ValueError:
        match = _CLOCK.fullmatch(text.strip())
        if match is None:
            raise InputError(
                f'{field}: "{text}": must be seconds, HH:MM, HH:MM:SS or days-HH:MM:SS, as 5400 or 2-03:04:05'
            ) from None
        parts = {name: float(value or 0) for name, value in match.groupdict().items()}
        return parts["days"] * 86400 + parts["hours"] * 3600 + parts["minutes"] * 60 + parts["seconds"]
    if not math.isfinite(seconds):
        raise InputError(f'{field}: "{text}": must be finite')
    return seconds


def time_labels(ticks: Sequence[float]) -> list[str]:
    """Short texts for ticks; whole days only, where that is what they are."""
    if len(ticks) > 1 and all(t % 86400 == 0 for t in ticks):
        return [f"{t / 86400:.0f} d" for t in ticks]
    return [clock(t, short=True) for t in ticks]


def time_ticks(from_s: float, to_s: float, most: int = 12) -> list[float]:
    """Round instants from `from_s` to `to_s`, at most `most` of them where steps of up to a week allow it."""
    step = next((s for s in _STEPS_S if (to_s - from_s) / s <= most), _STEPS_S[-1])
    while (to_s - from_s) / step > most:
        step *= 2
    return [float(number * step) for number in range(math.ceil(from_s / step), math.floor(to_s / step) + 1)]
