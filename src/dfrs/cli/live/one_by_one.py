"""One request for each of several jobs or nodes: what was done is told, whatever becomes of the others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dfrs.cli.console import err
from dfrs.cli.live.cluster import patience
from dfrs.model.errors import DfrsError
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.following import Patience

_Thing = TypeVar("_Thing", int, str)


def one_by_one(
    things: Iterable[_Thing], act: Callable[[_Thing], object], *, again: bool
) -> tuple[list[_Thing], dict[_Thing, DfrsError]]:
    """Do it to each: those to which it was done, and why it was not done to others.

    `again`: it may be asked for twice, so a controller that goes away after the first one is waited for. Where nobody
    answers in the end, the rest is not tried.
    """
    from dfrs.live.errors import UnavailableError, UnreachableError

    done: list[_Thing] = []
    failed: dict[_Thing, DfrsError] = {}
    patient, away = patience(), ""
    for thing in things:
        if away:
            failed[thing] = UnreachableError(f"not tried: {away}", sent=False)
            continue
        try:
            if again and (done or failed):
                _until_answered(partial(act, thing), patient)
            else:
                act(thing)
            done.append(thing)
        except (UnreachableError, UnavailableError) as error:
            in_doubt = isinstance(error, UnreachableError) and error.sent
            failed[thing] = UnreachableError(f"may be done all the same: {error}") if in_doubt else error
            away = str(error)
        except DfrsError as error:
            failed[thing] = error
    return done, failed


def _until_answered(act: Callable[[], object], patient: "Patience") -> None:
    from dfrs.live.errors import ConflictError, UnreachableError
    from dfrs.live.following import asleep

    in_doubt = False

    def ask() -> None:
        nonlocal in_doubt
        try:
            act()
        except UnreachableError as error:
            in_doubt = in_doubt or error.sent
            raise
        except ConflictError:
            # It is so already: it was done when nobody answered.
            if not in_doubt:
                raise

    asleep(patient.ask(ask))


def tell_failures(failed: Mapping[_Thing, DfrsError], words: Callable[[Sequence[_Thing]], str]) -> None:
    """A line for each reason; `words` names several of those to which it was not done."""
    from dfrs.live.errors import UnavailableError, UnreachableError

    by_reason: dict[str, list[_Thing]] = {}
    for thing, error in failed.items():
        by_reason.setdefault(str(error), []).append(thing)
    for why, things in by_reason.items():
        # Of what was refused the controller says itself what it is about.
        alone = len(things) == 1 and not isinstance(failed[things[0]], UnreachableError | UnavailableError)
        told = why if alone else f"{words(things)}: {why}"
        err.print(f"dfrs: {visible(told)}", markup=False, soft_wrap=True)
