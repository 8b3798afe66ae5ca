"""Names and features of nodes as options name them."""

import re

from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError


class NodeNames(tuple[str, ...]):
    """Names of nodes, and how they were written."""

    text: str


def parse_nodes(text: str, field: str) -> NodeNames:
    """Of `node-1,node-2`. Raises InputError."""
    from dfrs.live.protocol.observed import NAME

    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not re.fullmatch(NAME, name):
            raise InputError(f"{field}: {quoted(name)}: must be names of nodes with commas between them")
    found = NodeNames(names)
    found.text = text
    return found


def parse_features(text: str) -> str:
    """`a,b`, `a&b` or `a|b` as it is. Raises InputError."""
    from dfrs.live.protocol.node_choice import features

    try:
        features(text)
    except ValueError as error:
        raise InputError(f"--constraint: {quoted(text)}: {error}") from None
    return text


def check_feature(text: str) -> str:
    """A feature of a node. Raises InputError."""
    from dfrs.live.protocol.observed import FEATURE

    if not re.fullmatch(FEATURE, text):
        rule = 'must be at most 63 letters, digits and any of "._:=+-", a letter or digit first'
        raise InputError(f"--feature: {quoted(text)}: {rule}")
    return text
