"""Text of others, shown so that it can neither steer a terminal nor turn round what is written beside it."""

import re

CONTROLS = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: a terminal obeys them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of writing (Unicode TR 9)
    "\u2028\u2029"  # end a line
    "\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # are not seen
)
"""Characters that no name has, as the inside of a regular expression's character class."""
_UNSHOWN = re.compile(f"[{CONTROLS}\ud800-\udfff]")


def visible(text: str) -> str:
    r"""`text` on one line, with each character of CONTROLS and each lone surrogate as Python writes it.

    >>> visible("a\x1b[2J\u202eb\n")
    'a\\x1b[2J\\u202eb\\n'
    """
    return _UNSHOWN.sub(_escaped, text)


def has_controls(text: str) -> bool:
    """Whether a character of `text` would not be shown as it is."""
    return _UNSHOWN.search(text) is not None


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
