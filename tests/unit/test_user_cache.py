"""What takes long is made once for each key, by whatever process; a cache that cannot be used costs only time."""

import pytest

from dfrs.model import user_cache
from dfrs.model.user_cache import remembered


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Asks for a key; what comes back, and whether it had to be made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def ask(key):
        made = []
        found = remembered("digests", key, lambda: made.append(key) or f"of {key}")
        assert found == f"of {key}"
        return bool(made)

    return ask


def test_it_is_made_once_for_each_key(asked):
    assert [asked(key) for key in ("a", "b", "a", "b")] == [True, True, False, False]


def test_the_latest_are_kept(asked, monkeypatch):
    monkeypatch.setattr(user_cache, "_KEPT", 3)
    assert [asked(key) for key in "abcd"] == [True] * 4
    assert [asked(key) for key in "bcd"] == [False] * 3
    assert asked("a")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"a": 1}'])
def test_a_damaged_file_is_made_again(asked, tmp_path, text):
    (tmp_path / "dfrs").mkdir()
    (tmp_path / "dfrs" / "digests.json").write_bytes(text)
    assert [asked("a"), asked("a")] == [True, False]


def test_where_nothing_can_be_kept_it_is_made_each_time(asked, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert [asked("a"), asked("a")] == [True, True]
