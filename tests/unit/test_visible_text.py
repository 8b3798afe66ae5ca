"""Characters that steer a terminal or turn text round: in no name, and shown as escapes wherever text of others is."""

import io
import json
import unicodedata

import pytest
from rich.console import Console

from dfrs.cli.console import PlainConsole
from dfrs.cli.live.serve import _cluster
from dfrs.live.controller.records import JobRecord
from dfrs.live.protocol.resources import STORED, JobRequest
from dfrs.model.errors import InputError
from dfrs.model.text import has_controls, visible
from tests.live_http import asked, bearer

BAD = ["\x1b", "\x07", "\x7f", "\x9b", "\u061c", "\u200b", "\u200f", "\u2028", "\u202e", "\u2066", "\ufeff"]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egpj.exe\u2066\x9b31m\r\nexit 0"
GOOD = ["a", "größe 3", "名前", "[/bold]", "-x", "a b\u00a0c", "שלום", "👩\u200d🔬"]


def test_all_that_controls_or_turns_round_is_found():
    for code in range(0x110000):
        character = chr(code)
        turns = unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or turns:
            assert has_controls(character), hex(code)
            assert visible(character).isascii()
    assert not any(has_controls(name) or visible(name) != name for name in GOOD)
    assert visible("a\tb\n\x1b\u202e\ud800") == r"a\tb\n\x1b\u202e\ud800"


@pytest.mark.parametrize("bad", BAD)
def test_no_job_has_such_a_name(bad):
    async def test(service, client):
        headers = bearer(service.token("root", "admin"))
        answer = await client.post("/api/v1/jobs", json={"command": ["a"], "name": f"a{bad}b"}, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("name: must have no character that controls")
        assert not service.requests

    asked(test)


def test_names_in_all_scripts_are_good():
    async def test(service, client):
        headers = bearer(service.token("root", "admin"))
        for name in GOOD:
            answer = await client.post("/api/v1/jobs", json={"command": ["a"], "name": name}, headers=headers)
            assert answer.status_code == 201, name

    asked(test)


def test_a_name_that_was_accepted_before_is_still_read():
    body = json.dumps({"command": ["a"], "name": "a\u202eb"})
    assert JobRequest.model_validate_json(body, context=STORED).name == "a\u202eb"
    with pytest.raises(ValueError, match="controls a terminal"):
        JobRequest.model_validate_json(body)


def test_a_job_named_by_its_program_is_so_visibly():
    request = JobRequest(command=(f"/tmp/{HOSTILE}",))
    record = JobRecord(1, 1, request, "ann", 0.0, array_index=None, held=False)
    assert record.name == visible(HOSTILE)


@pytest.mark.parametrize("bad", BAD)
def test_no_cluster_has_such_a_name(bad):
    with pytest.raises(InputError, match="--name"):
        _cluster(f"a{bad}")


def test_the_console_escapes_what_no_view_did_and_leaves_its_own_alone():
    def shown(kind):
        text = io.StringIO()
        console = kind(file=text, force_terminal=True, color_system="standard", width=80, highlight=False)
        console.print("a \x1b[2J\u202e b", style="red", markup=False)
        console.print("one\ntwo")
        return text.getvalue()

    assert "\x1b[2J" in shown(Console)
    plain = shown(PlainConsole)
    assert r"a \x1b[2J\u202e b" in plain
    assert plain.startswith("\x1b[31m")
    assert plain.endswith("one\ntwo\n")
