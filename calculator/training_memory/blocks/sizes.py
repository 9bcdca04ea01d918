"""How many numbers the tensors of a layer hold, as formulas, under names that its code can use."""

from __future__ import annotations

from ..formula import product

#: One number for each token.
ROWS = product(("s", "b"))
#: The residual stream.
TOKENS = product(("s", "b", "h"))
#: All heads' queries; the context that attention makes of them is as large.
QUERIES = product(("s", "b", "a", "e"))
#: The keys, or the values.
KEYS = product(("s", "b", "g", "e"))
#: One number for each token and head.
HEAD_ROWS = product(("b", "a", "s"))
KEY_HEAD_ROWS = product(("b", "g", "s"))
#: The same, the tokens up to a whole number of 32.
PADDED_HEAD_ROWS = product(("b", "a", "w"))
#: One number for each pair of tokens and head.
SCORES = product(("b", "a", "s", "s"))
#: One number for each pair of tokens and sequence: a mask.
PAIRS = product(("b", "s", "s"))
#: The feed-forward layer's inner width.
WIDE = product(("s", "b", "f"))
#: One number for each token and vocabulary entry.
LOGITS = product(("s", "b", "V"))
#: Rotary tables: one number for each position and feature of a head.
ROTARY = product(("s", "e"))
#: A causal mask shared by all sequences.
CAUSAL = product(("s", "s"))
#: Positions, and their embedding, shared by all sequences.
POSITIONS = product(("s",))
PLACES = product(("s", "h"))
#: A mixture of experts: each token's score for each expert, and for those chosen.
ROUTED = product(("s", "b", "x"))
CHOSEN = product(("s", "b", "k"))
#: Every token once for each expert chosen for it, before and inside the experts.
DISPATCHED = product(("s", "b", "k", "h"))
DISPATCHED_WIDE = product(("s", "b", "k", "f"))
#: Where several GPUs share a layer's tokens between its products: those of one of them.
OWN_ROWS = product(("z", "b"))
OWN_TOKENS = product(("z", "b", "h"))
#: One number for each of these and expert, or chosen expert; the tokens, as often as was chosen.
OWN_SCORES = product(("z", "b", "x"))
OWN_CHOSEN = product(("z", "b", "k"))
SENT = product(("z", "b", "k", "h"))
