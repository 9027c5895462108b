"""The check of the pages' prose: it leaves code out, and finds words that the pages do not use."""

from pathlib import Path

import pytest


@pytest.fixture
def prose(script):
    return script("prose")


def test_banned_words_are_found_in_text_and_not_in_code(prose):
    page = "# Title\n\nScored anew.\n\n```sh\nanew\n```\n\n`anew`, [a race](race.md) in docs/race.md\n"
    found = prose.banned(Path("page.md"), prose.prose(page))
    assert [line.split(": use")[0] for line in found] == ["page.md:3: 'anew'", "page.md:9: 'race'"]


def test_lines_keep_their_numbers(prose):
    page = "one\n\n```python\ntwo\n```\n    three\n`four` 5x5\n"
    assert prose.prose(page).count("\n") == page.count("\n")
