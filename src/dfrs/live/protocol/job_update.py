"""What users change of jobs that they have submitted."""

from collections.abc import Mapping
from copy import copy
from typing import Any

from pydantic import ValidationError, field_validator

from dfrs.live.protocol.resources import PLAIN, ApiModel, JobRequest, Label, Number, WarningSignal
from dfrs.model.errors import InputError
from dfrs.model.text import has_controls


def _as_submitted(name: str) -> Any:  # noqa: ANN401 - a field of any type
    """With the rules of the request's field. Its default says nothing here: what is left out stays as it is."""
    return copy(JobRequest.model_fields[name])


class JobUpdate(ApiModel):
    """Fields of a job's request to change, as in JobRequest; what is left out stays as it is."""

    name: Label | None = _as_submitted("name")
    cpu_cores: float | None = _as_submitted("cpu_cores")
    memory_bytes: int | None = _as_submitted("memory_bytes")
    minimum_yield: float = _as_submitted("minimum_yield")
    weight: float = _as_submitted("weight")
    estimate_s: float | None = _as_submitted("estimate_s")
    time_limit_s: float | None = _as_submitted("time_limit_s")
    warning_signal: WarningSignal | None = _as_submitted("warning_signal")
    warning_s: float = _as_submitted("warning_s")
    start_at: float | None = _as_submitted("start_at")
    after: tuple[Number, ...] = _as_submitted("after")
    after_failed: tuple[Number, ...] = _as_submitted("after_failed")
    after_any: tuple[Number, ...] = _as_submitted("after_any")
    after_start: tuple[Number, ...] = _as_submitted("after_start")
    array_limit: int | None = _as_submitted("array_limit")

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str | None) -> str | None:
        if name is not None and has_controls(name):
            raise ValueError(PLAIN)
        return name

    @property
    def fields(self) -> Mapping[str, Any]:
        """What it says, by the name of the field."""
        return {name: getattr(self, name) for name in JobUpdate.model_fields if name in self.model_fields_set}


ONCE_BEGUN = frozenset({"name", "cpu_cores", "minimum_yield", "weight", "estimate_s"})
"""Fields that still mean something when the job has begun."""


WARNING = frozenset({"time_limit_s", "warning_signal", "warning_s"})
"""Fields that are right or wrong together."""


def changed(request: JobRequest, fields: Mapping[str, Any], context: str | None = None) -> JobRequest:
    """The request with other values in these fields. Raises InputError with the field and the rule.

    `context` is STORED for what was accepted before.
    """
    beside = () if WARNING.isdisjoint(fields) else WARNING
    values = {"command": request.command, **{name: getattr(request, name) for name in beside}, **fields}
    try:
        asked = JobRequest.model_validate(values, context=context)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        rule = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{first['loc'][0]}: {rule[:1].lower()}{rule[1:]}") from None
    return request.model_copy(update={name: getattr(asked, name) for name in fields})
