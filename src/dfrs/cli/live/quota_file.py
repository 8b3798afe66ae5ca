"""The file of quotas that `dfrs serve --quotas` reads."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dfrs.cli.quantities import parse_bytes, quoted
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.protocol.quotas import Quota, Quotas

NONE = "none"
"""Instead of a number: no limit, where the default has one."""
_FIELDS = {
    "open_jobs": "open_jobs",
    "cpu_cores": "cpu_cores",
    "memory": "memory_bytes",
    "submissions_per_minute": "submissions_per_minute",
}
"""As they are in the file, and in `Quota`."""


def read_quotas(path: Path) -> "Quotas":
    """Quotas from TOML: a table [default], and tables [users.NAME]. Raises InputError with file, field and rule."""
    from dfrs.live.protocol.quotas import Quota, Quotas

    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', 'not text')}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is no TOML: {error}") from None
    for name in found:
        if name not in {"default", "users"}:
            raise InputError(f"{path}: {quoted(name)}: must be [default] or [users.NAME]")
    default = _quota(f"{path}: default", found.get("default", {}), Quota())
    users = found.get("users", {})
    if not isinstance(users, dict):
        raise InputError(f"{path}: users: must be tables [users.NAME]")
    return Quotas(
        default=default,
        users={name: _quota(f"{path}: users.{name}", table, default) for name, table in users.items()},
    )


def _quota(where: str, table: Any, default: "Quota") -> "Quota":  # noqa: ANN401
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: must be a table, as [default] or [users.NAME]")
    changed: dict[str, Any] = {}
    for name, value in table.items():
        if name not in _FIELDS:
            raise InputError(f"{where}.{name}: must be one of {', '.join(_FIELDS)}")
        changed[_FIELDS[name]] = None if value == NONE else _value(f"{where}.{name}", name, value)
    return type(default)(**(asdict(default) | changed))


def _value(where: str, name: str, value: Any) -> float:  # noqa: ANN401
    if name == "memory":
        if not isinstance(value, str):
            raise InputError(f'{where} = {value!r}: must be a size with a unit, as "64G", or "{NONE}"')
        return parse_bytes(value, where)
    whole = name == "open_jobs"
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 <= value < 1e15:
        raise InputError(f'{where} = {value!r}: must be a {"whole " if whole else ""}number of at least 0, or "{NONE}"')
    if name == "submissions_per_minute" and value < 1:
        raise InputError(f"{where} = {value!r}: must be at least 1; to let a user submit nothing, set open_jobs = 0")
    return value
