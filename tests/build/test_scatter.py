"""The accuracy page's picture: a point for every step, where it belongs."""

import re

import pytest

from accuracy_tables import compared
from peer_tables import published, traced
from peers import PEERS
from scatter import points, scatter

# What it is drawn from takes seconds, once for each process.
pytestmark = pytest.mark.xdist_group("measured")


@pytest.fixture(scope="module")
def drawn():
    return scatter()


def marks(drawn, kind):
    found = re.findall(rf'class="scatter-{kind}" x="([\d.]+)%" y="([\d.]+)"', drawn)
    return [(float(x), float(y)) for x, y in found]


def test_every_step_has_a_point(drawn):
    assert len(marks(drawn, "traced")) == len(compared())
    assert len(marks(drawn, "published")) >= len(published())
    for peer in PEERS:
        assert len(marks(drawn, peer.id)) == len(traced()) + len(published())


def test_an_exact_prediction_lies_on_the_line(drawn):
    (line,) = re.findall(
        r'class="scatter-same" x1="([\d.]+)%" y1="([\d.]+)" x2="([\d.]+)%" y2="([\d.]+)"', drawn
    )
    left, bottom, right, top = map(float, line)
    for x, y in marks(drawn, "traced"):
        assert abs((x - left) / (right - left) - (bottom - y) / (bottom - top)) < 0.002


def test_too_high_a_prediction_lies_above(drawn):
    kinds = [point for point in points() if point[0] == PEERS[0].id]
    (line,) = re.findall(r'class="scatter-same" x1="([\d.]+)%" y1="([\d.]+)"', drawn)
    for (_, true, predicted), (x, y) in zip(kinds, marks(drawn, PEERS[0].id), strict=True):
        over = (float(line[1]) - y) / 340 - (x - float(line[0])) / 90
        assert (over > 0) == (predicted > true) or abs(over) < 0.003


def test_no_mark_is_taken_for_a_link(drawn):
    # The theme's script sets the address of whatever has an href.
    assert not re.search(r'[^:]href="', drawn)
