"""What Typer says of a value that it does not take, in the words of all other messages: option, value, rule."""

import re
from collections.abc import Mapping
from typing import Any

from dfrs.cli.quantities import quoted

RULES = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "float_parsing": "must be a number",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be above {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be below {lt:g}",
}
"""By the kind of error that pydantic gives, with what it says of the limit."""
_CHOICE = re.compile(r"is not one of (.*?)\.?$")


def restated(error: Exception) -> str | None:
    """`--jobs "many": must be a whole number`; None where it is not about the value of an option or argument."""
    from pydantic import ValidationError

    parameter, cause = getattr(error, "param", None), error.__cause__
    if parameter is None or not isinstance(cause, ValidationError):
        return None
    first = cause.errors(include_url=False)[0]
    return f"{_name(parameter, getattr(error, 'ctx', None))} {quoted(first['input'])}: {_rule(first)}"


def _name(parameter: Any, context: Any) -> str:  # noqa: ANN401 - Typer's own, which it does not publish
    """Of an option the longest spelling, or the variable that it comes from; of an argument what the help calls it."""
    source = None if context is None else context.get_parameter_source(parameter.name)
    if source is not None and source.name == "ENVIRONMENT":
        return str(parameter.envvar)
    names = [name for name in parameter.opts if name.startswith("-")]
    return max(names, key=len) if names else ((parameter.metavar or "").strip() or parameter.name).upper()


def _rule(first: Mapping[str, Any]) -> str:
    words = RULES.get(first["type"])
    if words is not None:
        return words.format_map(first.get("ctx", {}))
    said = str(first["msg"]).removeprefix("Value error, ")
    if choice := _CHOICE.search(said):
        return f"must be one of {choice[1].replace(chr(39), '')}"
    return said.replace("Input should", "must", 1)
