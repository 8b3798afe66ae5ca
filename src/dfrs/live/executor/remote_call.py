"""What a job that is a call does: it unpickles a function, calls it, and writes the outcome.

The call comes in variables of the environment, which nobody is shown, unlike a command. The outcome is the only line of
standard output: what the function prints goes to standard error.
"""

import base64
import hashlib
import os
import pickle
import sys
import traceback
import zlib
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

import cloudpickle

from dfrs.live.errors import TooLargeError

VARIABLE = "_DFRS_CALL_"
"""Name of a variable with a piece of the call, before the piece's number."""
PIECE = 100_000
"""Characters of a piece: Linux takes 131,071 of a variable with its name."""
MOST_CALL = 200_000
"""Characters of a call: less than the controller takes, by room for other variables."""
MOST_OUTCOME = 15 << 20
"""Characters of an outcome: of an output 16 MiB are kept at least."""
MARK = "dfrs-call/1"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call."""

    value: Any
    """Returned, or an exception."""
    raised: bool = False


def packed_call(call: Callable[[], object], path: Iterable[str]) -> dict[str, str]:
    """Variables that hold the call, with the places where its modules are found. Raises TooLargeError."""
    text = _text((list(path), cloudpickle.dumps(call)))
    if len(text) > MOST_CALL:
        raise TooLargeError(
            f"the function and its arguments: {len(text) * 3 // 4} bytes when pickled and compressed: must be at most "
            f"{MOST_CALL * 3 // 4}; pass the path of a file"
        )
    pieces = range(0, len(text), PIECE)
    return {f"{VARIABLE}{k}": text[start : start + PIECE] for k, start in enumerate(pieces)}


def taken_call(environ: MutableMapping[str, str]) -> tuple[list[str], bytes]:
    """The places of modules, and the pickled call, which is then no longer in the environment."""
    names = sorted((name for name in environ if name.startswith(VARIABLE)), key=lambda name: (len(name), name))
    return _value("".join(environ.pop(name) for name in names))


def packed_outcome(outcome: Outcome) -> str:
    """The line that tells it; of something too large, or that cannot be pickled, that it is so."""
    try:
        pickled = cloudpickle.dumps((outcome.value, outcome.raised))
        text = _text(pickled)
        if len(text) > MOST_OUTCOME:
            raise TooLargeError(
                f"the result: {len(text) * 3 // 4} bytes when pickled and compressed: must be at most "
                f"{MOST_OUTCOME * 3 // 4}; write it to a file and return its path"
            )
        if outcome.raised:
            # Some exceptions can be pickled and not be made again.
            pickle.loads(pickled)  # noqa: S301 - what was pickled just now
    except Exception as problem:
        told = RuntimeError("".join(traceback.format_exception(outcome.value)).strip()) if outcome.raised else problem
        text = _text(cloudpickle.dumps((told, True)))
    return f"{MARK} {_digest(text)} {text}\n"


def read_outcome(line: str) -> Outcome | None:
    """The outcome; None where the line is not a whole one. Raises what unpickling it raises."""
    mark, _, rest = line.partition(" ")
    digest, _, text = rest.partition(" ")
    if mark != MARK or not text.endswith("\n") or digest != _digest(text[:-1]):
        return None
    return Outcome(*pickle.loads(_value(text)))  # noqa: S301 - written by a job of the caller's own


def each(function: Callable[..., _T], calls: Iterable[tuple[Any, ...]]) -> list[_T]:
    """Results of several calls, as one: a chunk of `Executor.map`."""
    return [function(*arguments) for arguments in calls]


def _text(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def _value(text: str) -> Any:  # noqa: ANN401
    return pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301 - as packed here, by the same user


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> int:
    """Call it; the exit status says whether it returned."""
    # Only the outcome goes to where it is read.
    told = os.dup(1)
    os.dup2(2, 1)
    path, pickled = taken_call(os.environ)
    sys.path += [each for each in path if each not in sys.path]
    try:
        outcome = Outcome(pickle.loads(pickled)())  # noqa: S301 - of the user whose job this is
    except BaseException as error:
        place = f"job {os.environ.get('DFRS_JOB_ID')} on node {os.environ.get('DFRS_NODE')}"
        error.add_note(f"in {place}:\n{''.join(traceback.format_exception(error)).rstrip()}")
        outcome = Outcome(error, raised=True)
    sys.stdout.flush()
    line = packed_outcome(outcome)
    with os.fdopen(told, "w") as file:
        file.write(line)
    return int(outcome.raised)
