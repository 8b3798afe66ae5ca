"""Exceptions whose message is one line that says what to do next."""


class DfrsError(Exception):
    """Anything this package raises on purpose."""


class InputError(DfrsError):
    """What the user gave is not valid: the message names file, line or field, value and rule.

    Correct the named field and run again; nothing was written. Exit status 2.
    """


class InfeasibleError(DfrsError):
    """No placement meets the requirements: the message names the resource that makes it so.

    Add nodes, lower the named requirement or relax a minimum yield. Exit status 3.
    """


class StoppedError(DfrsError):
    """A controller cannot go on, and has stopped; jobs run on. The message says why.

    Do what it says, and start the controller again. Exit status 1.
    """


class ReplacedError(StoppedError):
    """Another controller has taken over the database of this one: only one may use it. Exit status 4.

    Do not start this one again by itself: it would take over in its turn.
    """

    status = 4


class UnsupportedError(InputError):
    """The algorithm does not take this kind of instance: the message says which ones do. Exit status 2."""
