"""Under which account the tasks of a node run: that of the job's user, one for all, or the agent's own."""

import os
import pwd
from dataclasses import dataclass

from dfrs.live.drivers.base import RefusedError, TaskSpec
from dfrs.model.errors import InputError

UNPRIVILEGED = "nobody"
"""Account of tasks whose user has none on the node."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """The rule of one node. Without anything, all tasks run under the agent's own account."""

    users: bool = False
    """A task runs under the account named like its job's user, if the node has one that is not root's …"""
    other: str | None = None
    """… or else under this one; None: or else not at all."""

    def apply(self, spec: TaskSpec) -> TaskSpec:
        """The task with the account under which it runs here. Raises RefusedError."""
        return spec.model_copy(update={"account": self._of(spec.account)})

    def _of(self, user: str | None) -> str | None:
        if not self.users:
            return self.other
        problem = _problem(user)
        if not problem:
            return user
        if self.other is None:
            raise RefusedError(problem)
        return self.other

    def __str__(self) -> str:
        """In words, of the tasks of a node."""
        if not self.users:
            return f"tasks run as {self.other or _own()}"
        last = "are not started" if self.other is None else f"run as {self.other}"
        return f"tasks run as their job's user; those of a user without an account here, or of root, {last}"


AGENTS_OWN = Accounts()
"""Of an agent that is not root, or that was told to run tasks as root."""


def choose(run_as: str | None, *, users: bool) -> Accounts:
    """The rule of an agent that was told to run all tasks as `run_as`, or as their users only.

    By default an agent of root runs tasks as their users, and else as nobody: root must be named. Raises InputError.
    """
    if run_as is not None and users:
        raise InputError("--accounts: cannot be combined with --run-as: choose one")
    if os.geteuid() != 0:
        if users:
            raise InputError("--accounts: only root can run tasks under other accounts; leave it out")
        if run_as is not None and _uid(run_as) != os.geteuid():
            raise InputError(f"--run-as {run_as}: only root can run tasks under another account; leave it out")
        return AGENTS_OWN
    if users:
        return Accounts(users=True)
    account = UNPRIVILEGED if run_as is None else run_as
    uid = _uid(account)
    if uid is None:
        remedy = "name another with --run-as" if run_as is None else "name one that there is"
        raise InputError(f"--run-as {account}: there is no such account on this node; {remedy}")
    if uid == 0:
        return AGENTS_OWN
    return Accounts(users=run_as is None, other=account)


def _problem(user: str | None) -> str:
    """Why a job of that user cannot run as that user; empty if it can."""
    if user is None:
        return "account: none is given, and tasks of this node run under their users' accounts only"
    uid = _uid(user)
    if uid is None:
        return f"account {user}: there is none of that name on this node"
    return f"account {user}: is root's, under which no task runs" if uid == 0 else ""


def _own() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _uid(account: str) -> int | None:
    try:
        return pwd.getpwnam(account).pw_uid
    except (KeyError, ValueError):
        return None
