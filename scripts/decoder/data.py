"""What the Decoder reads: a page about itself, and the 64 characters that it knows."""

from __future__ import annotations

import random
from string import ascii_lowercase, ascii_uppercase

ALPHABET = " \n.,;:'!?-()" + ascii_lowercase + ascii_uppercase
"""The vocabulary, 64 characters; a token is a character's place in it."""

TEXT = """\
The forward pass walks up the layers, and at every step it sets something down to be picked up
later. The backward pass walks down again, and at every step it picks up what was left there.
The memory is full at the turning point, when all is set down and nothing has been picked up.
Keep the whole walk, and the way back is short. Keep only the doors between the rooms, and you
must walk through every room again to find what was in it: the load is light, but the way longer.
What does a layer leave behind? The input of the norm; the queries, the keys and the values; the
weights, one for each pair of words and each head; what they weigh; the wide row in the middle.
A sum leaves nothing behind, for the way back through a sum is open.
"""
"""The training text, written for this purpose."""


def encode(text: str) -> list[int]:
    """Characters to tokens; a character outside the alphabet raises ValueError naming it."""
    place = {character: token for token, character in enumerate(ALPHABET)}
    for character in text:
        if character not in place:
            raise ValueError(
                f"{character!r} is not one of the Decoder's {len(ALPHABET)} characters"
            )
    return [place[character] for character in text]


def decode(tokens: list[int]) -> str:
    """Tokens to characters."""
    return "".join(ALPHABET[token] for token in tokens)


def draw_batch(
    tokens: list[int], source: random.Random, *, sequences: int, sequence: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Passages of ``sequence`` tokens from random places, and the same passages moved on by one."""
    starts = [source.randrange(len(tokens) - sequence) for _ in range(sequences)]
    return (
        [tokens[start : start + sequence] for start in starts],
        [tokens[start + 1 : start + sequence + 1] for start in starts],
    )
