"""Values of Slurm's accounting, written and read in the most obvious way."""

UNITS = "KMGTP"


def printed_duration(seconds, milliseconds=0):
    """As sacct prints CPU times: milliseconds only where there are no hours."""
    days = seconds // 86400
    hours = seconds // 3600 % 24
    clock = f"{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if days:
        return f"{days}-{hours:02d}:{clock}"
    if hours:
        return f"{hours:02d}:{clock}"
    return f"{clock}.{milliseconds:03d}" if milliseconds else f"00:{clock}"


def naive_duration(text):
    """Seconds of what `printed_duration` wrote."""
    days = 0
    if "-" in text:
        before, text = text.split("-")
        days = int(before)
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part)
    return days * 24 * 60 * 60 + seconds


def printed_amount(number):
    """As sacct prints memory: in the largest unit in which it is whole or a half, else in bytes."""
    unit = -1
    while number % 512 == 0 and number >= 1024 and unit + 1 < len(UNITS):
        number /= 1024
        unit += 1
    letter = UNITS[unit] if unit >= 0 else ""
    return f"{int(number)}{letter}" if number == int(number) else f"{number:.2f}{letter}"


def naive_amount(text):
    """Bytes of what `printed_amount` wrote."""
    factor = 1
    if text[-1] in UNITS:
        for unit in UNITS:
            factor *= 1024
            if unit == text[-1]:
                break
        text = text[:-1]
    return float(text) * factor
