"""Sections between the marks become slides, and nothing else does."""

import pytest

from slides import slides

BEGIN, END = '<div class="deck-begins"></div>', '<div class="deck-ends"></div>'


def test_each_section_is_a_slide():
    page = f"<p>before</p>{BEGIN}\n<h2>A</h2><p>one</p>\n<h2>B</h2><h3>deeper</h3>{END}<p>after</p>"
    assert slides(page) == (
        '<p>before</p><div class="deck"><div class="slide"><h2>A</h2><p>one</p></div>'
        '<div class="slide"><h2>B</h2><h3>deeper</h3></div></div><p>after</p>'
    )


@pytest.mark.parametrize("live", ['<section class="tm tm-small">', "<table>", '<table class="x">'])
def test_what_needs_room_gets_it(live):
    assert '<div class="slide slide-wide">' in slides(f"{BEGIN}<h2>A</h2>{live}{END}")


def test_done_twice_it_changes_nothing_more():
    once = slides(f"{BEGIN}<h2>A</h2>{END}")
    assert slides(once) == once


def test_other_pages_stay_as_they_are():
    page = "<h2>A</h2><h2>B</h2>"
    assert slides(page) == page


def test_text_before_the_first_slide_would_be_lost():
    with pytest.raises(ValueError, match="before its first slide"):
        slides(f"{BEGIN}<p>stray</p><h2>A</h2>{END}")
