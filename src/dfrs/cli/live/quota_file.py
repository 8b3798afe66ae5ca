"""The file of quotas that `dfrs serve --quotas` reads."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dfrs.cli.quantities import parse_bytes, quoted
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.protocol.quotas import AccountQuota, Quota, Quotas

_Q = TypeVar("_Q", bound="Quota")
NONE = "none"
"""Instead of a number: no limit, where the default has one."""
_FIELDS = {
    "open_jobs": "open_jobs",
    "cpu_cores": "cpu_cores",
    "memory": "memory_bytes",
    "submissions_per_minute": "submissions_per_minute",
    "largest_weight": "largest_weight",
    "share": "share",
}
"""As they are in the file, and in `Quota`."""
_OF_USERS = {"submissions_per_minute", "largest_weight"}
"""Those that an account has none of."""


def read_quotas(path: Path) -> "Quotas":
    """Quotas from TOML: tables [default], [users.NAME] and [accounts.NAME].

    Raises InputError with file, field and rule.
    """
    from dfrs.live.protocol.quotas import Quota, Quotas

    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', 'not text')}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is no TOML: {error}") from None
    for name in found:
        if name not in {"default", "users", "accounts"}:
            raise InputError(f"{path}: {quoted(name)}: must be [default], [users.NAME] or [accounts.NAME]")
    default = _quota(f"{path}: default", found.get("default", {}), Quota())
    users, accounts = (_tables(path, kind, found.get(kind, {})) for kind in ("users", "accounts"))
    return Quotas(
        default=default,
        users={name: _quota(f"{path}: users.{name}", table, default) for name, table in users.items()},
        accounts={name: _account(f"{path}: accounts.{name}", table) for name, table in accounts.items()},
    )


def _tables(path: Path, kind: str, found: Any) -> Mapping[str, Any]:  # noqa: ANN401
    if not isinstance(found, dict):
        raise InputError(f"{path}: {kind}: must be tables [{kind}.NAME]")
    return cast("Mapping[str, Any]", found)


def _account(where: str, table: Any) -> "AccountQuota":  # noqa: ANN401
    """Submissions are counted for each user alone."""
    from dfrs.live.protocol.quotas import AccountQuota

    fields = {name: field for name, field in _FIELDS.items() if name not in _OF_USERS}
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: must be a table, as [accounts.NAME]")
    given = dict(cast("Mapping[str, Any]", table))
    for name in given.keys() - {*fields, "users"}:
        raise InputError(f"{where}.{name}: must be one of {', '.join(fields)}, users")
    users = given.pop("users", None)
    if users is not None and not (isinstance(users, list) and all(isinstance(each, str) for each in users)):
        raise InputError(f'{where}.users = {users!r}: must be a list of names, as ["ann", "bob"]')
    limits = _quota(where, given, AccountQuota())
    return replace(limits, users=None if users is None else frozenset(users))


def _quota(where: str, table: Any, default: "_Q") -> "_Q":  # noqa: ANN401
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: must be a table, as [default] or [users.NAME]")
    changed: dict[str, Any] = {}
    for name, value in table.items():
        if name not in _FIELDS:
            raise InputError(f"{where}.{name}: must be one of {', '.join(_FIELDS)}")
        lifted = value == NONE and name != "share"
        changed[_FIELDS[name]] = None if lifted else _value(f"{where}.{name}", name, value)
    return type(default)(**(asdict(default) | changed))


def _value(where: str, name: str, value: Any) -> float:  # noqa: ANN401
    if name == "memory":
        if not isinstance(value, str):
            raise InputError(f'{where} = {value!r}: must be a size with a unit, as "64G", or "{NONE}"')
        return parse_bytes(value, where)
    whole = name == "open_jobs"
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 <= value < 1e15:
        raise InputError(f'{where} = {value!r}: must be a {"whole " if whole else ""}number of at least 0, or "{NONE}"')
    if name in {"largest_weight", "share"} and value <= 0:
        raise InputError(f"{where} = {value!r}: must be above 0")
    if name == "submissions_per_minute" and value < 1:
        raise InputError(f"{where} = {value!r}: must be at least 1; to let a user submit nothing, set open_jobs = 0")
    return value
