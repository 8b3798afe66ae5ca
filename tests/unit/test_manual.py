"""Manual pages: one for each verb, with all that the help says, and nothing that troff does not know."""

import re
import shutil
import subprocess

import pytest

from dfrs.cli import manual
from dfrs.cli.verbs import FILES


@pytest.fixture(scope="module")
def pages():
    return dict(manual.pages())


def test_every_verb_has_a_page_and_is_on_the_first(pages):
    assert {f"dfrs-{verb}.1" for verb in FILES} < pages.keys()
    assert {"dfrs.1", "dfrs-token-create.1"} < pages.keys()
    for verb in FILES:
        assert f".B {verb}\n" in pages["dfrs.1"]


def test_a_page_says_what_the_help_says(pages):
    page = pages["dfrs-run.1"]
    for words in (
        ".B \\-\\-memory SIZE\n",
        ".B \\-\\-terminal / \\-\\-no\\-terminal\n",
        "DFRS_SERVER",
        ".I COMMAND...",
        "dfrs run \\-\\-cpu 1 \\-\\-memory 1G \\-\\- python3\n",
        "That of the program",
    ):
        assert words in page, words
    assert not any("[bold]" in text for text in pages.values())


def test_no_text_is_taken_for_a_request():
    assert manual._escaped(".x") == "\\&.x"
    assert manual._escaped("it's a\\b") == "it\\(aqs a\\eb"


def test_lists_of_other_pages_name_pages_that_there_are(pages):
    for name, text in pages.items():
        for other in re.findall(r"^\.BR (\S+) \(1\)", text, re.MULTILINE):
            assert other.replace("\\-", "-") + ".1" in pages, (name, other)


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_troff_has_nothing_to_say_about_them(tmp_path):
    files = manual.write(tmp_path)
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", *files], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", tmp_path / "dfrs-run.1"], capture_output=True, text=True, check=True
    ).stdout
    assert "as if it ran here" in shown
