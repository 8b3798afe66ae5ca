"""Addresses of controllers, and which of them a token may be sent to."""

import ipaddress
from urllib.parse import SplitResult

from dfrs.model.errors import InputError

ASIDE_HEADER, LEADER_HEADER = "dfrs-aside", "dfrs-leader"
"""Of an answer 503: this controller serves nobody for now, another one may; and where that is."""


def addresses(text: str) -> tuple[str, ...]:
    """Those in a list with commas, without the last slash of each."""
    return tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())


def is_loopback(host: str) -> bool:
    """Whether only this machine answers there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def must_be_secret(address: SplitResult, name: str) -> None:
    """Whoever listens on the way must learn no token. Raises InputError, which calls the address `name`."""
    if address.scheme == "http" and not is_loopback(address.hostname or ""):
        raise InputError(f"{name} {address.geturl()!r}: tokens go over TLS only: use https://")
