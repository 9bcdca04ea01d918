"""The textbook's layer: a GPT layer in 16-bit as Korthikanti et al. count it.

"Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198, §4.1. The rows
follow its list; their sum is its equation 1, and with ``t`` its equations 2 and 4 and Table 2.
"""

from __future__ import annotations

from .ledger import Ledger, Part, Row, Split

_TOKENS = ("s", "b", "h")
_WIDE = ("s", "b", 4, "h")
_SCORES = ("a", "s", "s", "b")
_ATTENTION = "Korthikanti et al. 2022, §4.1, attention block"
_MLP = "Korthikanti et al. 2022, §4.1, MLP"
_NORM = "Korthikanti et al. 2022, §4.1, layer norm"

LAYER = Ledger(
    [
        Row(
            name="first layer norm's input",
            module="Layer norm",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.SEQUENCE,
            part=Part.INPUT,
            why="The norm's gradient needs the values it normalised. It is also the layer's own "
            "input, from which everything below can be made again.",
            where=_NORM,
        ),
        Row(
            name="query, key and value projections' input",
            module="Attention",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.SEQUENCE,
            part=Part.REST,
            why="A weight's gradient is its input times the gradient of its output; the three "
            "projections share one input.",
            where=_ATTENTION,
        ),
        Row(
            name="queries",
            module="Attention",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.REST,
            why="The gradient of the keys is the scores' gradient times the queries.",
            where=_ATTENTION,
        ),
        Row(
            name="keys",
            module="Attention",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.REST,
            why="The gradient of the queries is the scores' gradient times the keys.",
            where=_ATTENTION,
        ),
        Row(
            name="softmax output",
            module="Attention",
            shape=_SCORES,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.CORE,
            why="Softmax's gradient is computed from its own output, one value for every pair of "
            "tokens in every head.",
            where=_ATTENTION,
        ),
        Row(
            name="softmax dropout mask",
            module="Attention",
            shape=_SCORES,
            item_bytes=1,
            split=Split.TENSOR,
            part=Part.CORE,
            why="Backward must drop the same attention weights that forward dropped: a byte each.",
            where=_ATTENTION,
        ),
        Row(
            name="attention weights after dropout",
            module="Attention",
            shape=_SCORES,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.CORE,
            why="The gradient of the values is these weights times the gradient of the context.",
            where=_ATTENTION,
        ),
        Row(
            name="values",
            module="Attention",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.REST,
            why="The gradient of the attention weights is the context's gradient times the values.",
            where=_ATTENTION,
        ),
        Row(
            name="output projection's input",
            module="Attention",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.REST,
            why="The projection's weight gradient needs its input, the heads' joined contexts.",
            where=_ATTENTION,
        ),
        Row(
            name="attention dropout mask",
            module="Attention",
            shape=_TOKENS,
            item_bytes=1,
            split=Split.SEQUENCE,
            part=Part.REST,
            why="Backward must drop the same outputs that forward dropped: a byte each.",
            where=_ATTENTION,
        ),
        Row(
            name="second layer norm's input",
            module="Layer norm",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.SEQUENCE,
            part=Part.REST,
            why="The norm's gradient needs the values it normalised: the residual stream after "
            "attention.",
            where=_NORM,
        ),
        Row(
            name="first linear layer's input",
            module="MLP",
            shape=_TOKENS,
            item_bytes=2,
            split=Split.SEQUENCE,
            part=Part.REST,
            why="The weight gradient of the layer that widens h to 4h needs its input.",
            where=_MLP,
        ),
        Row(
            name="GELU's input",
            module="MLP",
            shape=_WIDE,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.REST,
            why="GELU's slope depends on where it was evaluated, so its input is kept, 4h wide.",
            where=_MLP,
        ),
        Row(
            name="second linear layer's input",
            module="MLP",
            shape=_WIDE,
            item_bytes=2,
            split=Split.TENSOR,
            part=Part.REST,
            why="The weight gradient of the layer that narrows 4h to h needs its input, GELU's "
            "output.",
            where=_MLP,
        ),
        Row(
            name="MLP dropout mask",
            module="MLP",
            shape=_TOKENS,
            item_bytes=1,
            split=Split.SEQUENCE,
            part=Part.REST,
            why="Backward must drop the same outputs that forward dropped: a byte each.",
            where=_MLP,
        ),
    ]
)

_HALVED = "Qi et al. 2023, arXiv:2401.10241, table 1"


def _output(name: str, shape: tuple[str | int, ...], split: Split) -> Row:
    return Row(
        name=f"gradient of {name}",
        module="Backward",
        shape=shape,
        item_bytes=2,
        split=split,
        part=Part.REST,
        why="A weight's gradient is its input times this.",
        where=_HALVED,
    )


#: Where a schedule makes the weights' gradients later than the inputs', what a layer holds between:
#: each product's input and its output's gradient. The sum is the paper's 32·s·b·h.
WAITING = Ledger(
    [
        *(row for row in LAYER.rows if "projection" in row.name or "linear" in row.name),
        _output("queries, keys and values", ("s", "b", 3, "h"), Split.TENSOR),
        _output("the output projection's output", _TOKENS, Split.SEQUENCE),
        _output("the first linear layer's output", _WIDE, Split.TENSOR),
        _output("the second linear layer's output", _TOKENS, Split.SEQUENCE),
    ]
)

#: Logits and the loss, outside the layers: divided over the vocabulary by tensor parallelism.
LOGITS = Row(
    name="logits",
    module="Loss",
    shape=("s", "b", "V"),
    item_bytes=6,
    split=Split.TENSOR,
    part=Part.REST,
    why="The scores of every vocabulary entry for every token: 2 bytes as the head writes them and "
    "4 as the loss reads them, in 32-bit, both held until the loss's gradient is done.",
    where="this site's textbook schedule: a 16-bit copy (2) and the 32-bit copy of "
    "Korthikanti et al. 2022, §4.3 (4)",
)
