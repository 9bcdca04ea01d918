"""What the words on the calculator mean, each said once."""

from __future__ import annotations

from ..categories import Category
from .svg import escape

MEANING: dict[Category, str] = {
    Category.WEIGHTS: "The model's parameters, in the format that forward and backward use.",
    Category.GRADIENTS: "For each parameter, which way and how strongly to change it. The backward "
    "pass writes them, the optimizer reads them.",
    Category.OPTIMIZER: "What the optimizer remembers of each parameter's past gradients: Adam a "
    "running mean of them and one of their squares, another optimizer what it needs instead.",
    Category.MASTER: "A second copy of the weights in 32-bit, to which updates too small for the "
    "16-bit weights are added.",
    Category.ACTIVATIONS: "What the layers compute in the forward pass and keep until the backward "
    "pass has used it.",
    Category.RECOMPUTED: "With recomputation, one layer's dropped activations, made again in the "
    "backward pass on top of everything kept.",
    Category.LOGITS: "A score for every entry of the vocabulary at every token, from which the "
    "loss is computed.",
    Category.TEMPORARY: "What is on its way: gradients flowing through a layer, copies in another "
    "format, what the optimizer needs for a moment. The textbook counts none of it.",
}

PEAK = (
    "The most that is in memory at any one moment of a training step. It decides whether a run "
    "fits."
)
UNITS = (
    "1 GB is 1,000,000,000 bytes; 1 GiB is 1,073,741,824 bytes, 7 % more. Sellers count in GB, "
    "PyTorch prints GiB."
)


def term(word: str, meaning: str, name: str) -> str:
    """A word that explains itself on a click, a tap or the Enter key; ``name`` is a unique id."""
    return (
        f'<button type="button" class="tm-term" popovertarget="{name}">{escape(word)}</button>'
        f'<span class="tm-tip" id="{name}" popover>{escape(meaning)}</span>'
    )


def question(about: str, meaning: str, name: str) -> str:
    """The same behind a question mark, where the word itself is a label already."""
    return (
        f'<button type="button" class="tm-help" popovertarget="{name}" '
        f'aria-label="What is meant by {escape(about)}?">?</button>'
        f'<span class="tm-tip" id="{name}" popover>{escape(meaning)}</span>'
    )
