"""How sizes, durations and cores are shown to people."""

_UNITS = "KMGT"


def show_bytes(size: float) -> str:
    """At most five characters, as `512M` or `1.5G`; the unit is the largest that leaves a number of at least 1."""
    value, unit = size / 1024, _UNITS[0]
    for following in _UNITS[1:]:
        if value < 999.5:
            break
        value, unit = value / 1024, following
    return f"{value:.1f}{unit}" if value < 9.95 and round(value, 1) % 1 else f"{value:.0f}{unit}"


def show_seconds(seconds: float) -> str:
    """The two largest units that say anything, as `45s`, `12m`, `3h20m` or `2d4h`."""
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"
    large, small, unit, under = (3600, 60, "h", "m") if whole < 86400 else (86400, 3600, "d", "h")
    first, rest = divmod(whole, large)
    return f"{first}{unit}{rest // small}{under}" if rest // small and first < 100 else f"{first}{unit}"


def show_cores(cores: float) -> str:
    """Cores with as many decimals as matter: `0.25`, `1.5`, `16`."""
    return f"{cores:.2f}".rstrip("0").rstrip(".") if cores < 10 else f"{cores:.0f}"
