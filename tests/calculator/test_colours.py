"""The colours of the kinds of memory: readable, and told apart by eyes of every kind.

Contrast is WCAG 2.2's; colour vision deficiencies are simulated by Machado et al. 2009 at full
strength, and differences measured in Oklab (Björn Ottosson, 2020).
"""

import re
from itertools import pairwise
from math import dist
from pathlib import Path

import pytest

from training_memory.categories import CATEGORIES
from training_memory.render.svg import patterned

SHEET = Path(__file__).parents[2] / "calculator" / "web" / "memory.css"
#: What the theme draws its pages on, by scheme.
SURFACE = {"default": "#ffffff", "slate": "#1e2129"}

Triple = tuple[float, float, float]

SEEN_AS: dict[str, tuple[Triple, Triple, Triple]] = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def colours(scheme: str) -> dict[str, str]:
    """A scheme's custom properties."""
    text = SHEET.read_text(encoding="utf-8")
    block = text.split(f'[data-md-color-scheme="{scheme}"] {{')[1].split("}")[0]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", block))
    return {name: long(value) for name, value in found.items()}


def long(colour: str) -> str:
    return colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])


def linear(colour: str) -> Triple:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def times(matrix: tuple[Triple, Triple, Triple], vector: Triple) -> Triple:
    first, second, third = (
        sum(weight * value for weight, value in zip(row, vector, strict=True)) for row in matrix
    )
    return first, second, third


def oklab(rgb: Triple) -> Triple:
    cones = times(
        (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ),
        rgb,
    )
    roots = (cones[0] ** (1 / 3), cones[1] ** (1 / 3), cones[2] ** (1 / 3))
    return times(
        (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ),
        roots,
    )


def difference(one: str, other: str, eyes: str) -> float:
    seen = []
    for colour in (one, other):
        red, green, blue = times(SEEN_AS[eyes], linear(colour))
        seen.append(oklab((max(0, red), max(0, green), max(0, blue))))
    return dist(*seen)


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("scheme", SURFACE)
def test_a_colour_stands_out_and_can_be_written_on(scheme, category):
    sheet = colours(scheme)
    colour = sheet[f"category-{category}"]
    assert contrast(colour, SURFACE[scheme]) >= 3
    assert contrast(colour, sheet[f"on-category-{category}"]) >= 4.5


@pytest.mark.parametrize("eyes", SEEN_AS)
@pytest.mark.parametrize("scheme", SURFACE)
def test_neighbours_differ_for_all_eyes(scheme, eyes):
    sheet = colours(scheme)
    pairs = [*pairwise(CATEGORIES), ("activations", "logits"), ("optimizer", "activations")]
    for left, right in pairs:
        apart = difference(sheet[f"category-{left}"], sheet[f"category-{right}"], eyes)
        # A just noticeable difference is about 0.02; between neighbours there is a gap as well.
        assert apart > 0.055, f"{left} and {right}: {apart:.3f}"


@pytest.mark.parametrize("scheme", SURFACE)
def test_what_looks_alike_to_some_differs_in_pattern(scheme):
    sheet = colours(scheme)
    for left in CATEGORIES:
        for right in CATEGORIES:
            if left < right and not (patterned(left) or patterned(right)):
                for eyes in SEEN_AS:
                    colour, other = sheet[f"category-{left}"], sheet[f"category-{right}"]
                    assert difference(colour, other, eyes) > 0.1


@pytest.mark.parametrize("name", ["tm-good", "tm-warn", "tm-bad"])
@pytest.mark.parametrize("scheme", SURFACE)
def test_good_and_bad_news_can_be_read(scheme, name):
    assert contrast(colours(scheme)[name], SURFACE[scheme]) >= 4.5
