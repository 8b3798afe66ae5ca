"""Under which account tasks run: root's only where root was named."""

import os

import pytest

from dfrs.cli.live import agent as verb
from dfrs.live.agent import accounts
from dfrs.live.agent.accounts import AGENTS_OWN, Accounts, choose
from dfrs.live.drivers.base import RefusedError
from dfrs.model.errors import InputError
from tests.live_fakes import task_spec


@pytest.fixture
def root(monkeypatch):
    monkeypatch.setattr(accounts.os, "geteuid", lambda: 0)


@pytest.fixture
def daemon(monkeypatch):
    monkeypatch.setattr(accounts.os, "geteuid", lambda: 1)


def test_root_runs_nothing_as_root_unless_root_is_named(root):
    by_default = choose(None, users=False)
    assert by_default == Accounts(users=True, other="nobody")
    for user, account in (("daemon", "daemon"), ("root", "nobody"), ("no-such-user", "nobody"), (None, "nobody")):
        assert by_default.apply(task_spec(account=user)).account == account
    assert choose("root", users=False).apply(task_spec(account="daemon")).account is None
    assert choose("daemon", users=False).apply(task_spec(account="root")).account == "daemon"


def test_with_accounts_there_is_no_other_account(root):
    strict = choose(None, users=True)
    assert strict.apply(task_spec(account="daemon")).account == "daemon"
    for user, why in (("root", "is root's"), ("no-such-user", "none of that name"), (None, "none is given")):
        with pytest.raises(RefusedError, match=why):
            strict.apply(task_spec(account=user))


def test_others_run_all_as_themselves(daemon):
    assert choose(None, users=False) == choose("daemon", users=False) == AGENTS_OWN
    with pytest.raises(InputError, match=r"^--run-as root: only root can"):
        choose("root", users=False)
    with pytest.raises(InputError, match=r"^--accounts: only root can"):
        choose(None, users=True)


def test_what_cannot_be_is_refused(root, monkeypatch):
    with pytest.raises(InputError, match=r"^--accounts: cannot be combined with --run-as"):
        choose("daemon", users=True)
    with pytest.raises(InputError, match=r"^--run-as no-such-user: there is no such account"):
        choose("no-such-user", users=False)
    monkeypatch.setattr(accounts, "UNPRIVILEGED", "no-such-user")
    with pytest.raises(InputError, match="name another with --run-as"):
        choose(None, users=False)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Accounts(other="daemon"), "tasks run as daemon"),
        (Accounts(users=True), "those of a user without an account here, or of root, are not started"),
        (Accounts(users=True, other="nobody"), "those of a user without an account here, or of root, run as nobody"),
    ],
)
def test_the_rule_in_words(rule, words):
    assert str(rule).endswith(words)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run tasks under other accounts")
def test_the_agents_default(tmp_path, monkeypatch, dfrs):
    kept = []
    monkeypatch.delenv("DFRS_RUN_AS", raising=False)
    monkeypatch.setattr(verb, "_keep", lambda settings, *_: kept.append(settings.accounts))
    (tmp_path / "token").write_text("x")
    (tmp_path / "token").chmod(0o600)
    common = [
        "agent",
        "--server",
        "http://127.0.0.1:9",
        "--token-file",
        str(tmp_path / "token"),
        "--root",
        str(tmp_path),
    ]
    for options in ([], ["--run-as", "root"]):
        assert dfrs(*common, *options)[0] == 0
    assert kept == [Accounts(users=True, other="nobody"), AGENTS_OWN]
