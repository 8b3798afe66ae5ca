"""A job to submit, made of a command and fields: what a job gets of the place it is submitted from, and errors."""

import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from dfrs.live.protocol.job_update import JobUpdate
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import InputError

KEPT = ("PATH", "HOME", "LANG", "USER", "LOGNAME", "SHELL")
"""Of the submitter's environment. The rest stays behind: it may hold secrets, which would be stored with the job and
shown to whoever may see it, and a job that depends on it runs today and fails tomorrow."""

_RULES = {
    "name": "must be 1 to 128 printable characters",
    "user": 'must be a letter or _, then up to 31 letters, digits, ".", "_" or "-"',
    "account": 'must be a letter, digit or _, then up to 63 letters, digits, ".", "_" or "-"',
    "directory": "must be an absolute path of at most 4096 characters",
    "resources": "must be names of small letters, digits and hyphens, each with a whole number from 1 to 65536",
}
_UNSHOWN = {"environment", "command"}
"""Fields whose values are not repeated in an error: they may hold secrets."""


def own_environment(present: Mapping[str, str]) -> dict[str, str]:
    """What every job is given of the submitter's environment: the few variables of KEPT."""
    account = pwd.getpwuid(os.getuid())
    known = {"USER": account.pw_name, "LOGNAME": account.pw_name, "HOME": account.pw_dir, "SHELL": account.pw_shell}
    return known | {"PATH": os.defpath} | {name: present[name] for name in KEPT if name in present}


def job_request(command: Sequence[object], **fields: object) -> JobRequest:
    """A request as `dfrs submit` makes it: in this directory, named after the program, with a few variables.

    `fields` are those of JobRequest; `environment` adds to the variables of KEPT. Raises InputError with the field.
    """
    if isinstance(command, str | bytes) or not command:
        raise InputError(f"command {command!r}: must be a list of the program and its arguments")
    words = tuple(os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in command)
    given = fields.get("environment")
    if isinstance(given, Mapping):
        fields["environment"] = own_environment(os.environ) | dict(cast("Mapping[str, str]", given))
    defaults = {"name": Path(words[0]).name, "directory": os.getcwd(), "environment": own_environment(os.environ)}
    return checked_request(defaults | fields | {"command": words}, {}, repr)


def checked_request(
    fields: Mapping[str, object], names: Mapping[str, str], shown: Callable[[object], str]
) -> JobRequest:
    """The request with these fields. Raises InputError: field (as in `names`), value (as `shown`) and rule."""
    try:
        return JobRequest.model_validate(fields)
    except ValidationError as error:
        field, value, rule = _first(error)
        text = "" if field in _UNSHOWN else f" {shown(value)}"
        raise InputError(f"{names.get(field, field)}{text}: {rule}") from None


def checked_update(fields: Mapping[str, object], options: Mapping[str, str]) -> JobUpdate:
    """The update with these fields. Raises InputError: how it was given (as in `options`, or field and value), rule."""
    try:
        return JobUpdate.model_validate(fields)
    except ValidationError as error:
        field, value, rule = _first(error)
        raise InputError(f"{options.get(field) or f'{field} {value!r}'}: {rule}") from None


def _first(error: ValidationError) -> tuple[str, object, str]:
    """Field, value and rule of its first problem."""
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0])
    rule = _RULES.get(field) or first["msg"].removeprefix("Value error, ")
    return field, first["input"], f"{rule[:1].lower()}{rule[1:]}"
