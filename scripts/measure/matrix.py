"""Which whole steps are traced: a few chosen outright, and few more that cover every pair.

The full product of all choices has far over a million rows. Faults of a model of memory come from
one choice or from two that meet (a kernel and a precision, an optimizer and a gradient's dtype), so
every pair of choices is in at least one row, and so is every three of those named in ``TRIPLES``.
The rows are found greedily and in a fixed order; nothing is drawn by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from .case import LOSSES, OPTIMIZERS, PRECISIONS, RECOMPUTES, Case

Row = dict[str, str]
Wanted = Mapping[tuple[tuple[str, str], ...], None]


def _model(name: str, micro_batch: int, sequence: int, *, at: str = "huggingface") -> Case:
    return Case(implementation=at, model=name, micro_batch=micro_batch, sequence=sequence)


#: From 124 million to 8 billion parameters, each with a batch that it might be trained with.
MODELS: Mapping[str, Case] = {
    "gpt2": _model("gpt2", 8, 1024),
    "gpt2-classic": _model("gpt2", 4, 1024, at="paper"),
    "qwen2.5-0.5b": _model("qwen2.5-0.5b", 4, 1024),
    "qwen3-0.6b": _model("qwen3-0.6b", 2, 2048),
    "gemma-3-1b": _model("gemma-3-1b", 1, 2048),
    "llama-3.2-1b": _model("llama-3.2-1b", 2, 2048),
    "llama-3.2-1b-plain": _model("llama-3.2-1b", 1, 4096, at="torchtitan"),
    "gpt2-xl": _model("gpt2-xl", 2, 1024),
    "gemma-2-2b": _model("gemma-2-2b", 1, 1024),
    "phi-3-mini": _model("phi-3-mini", 1, 2048),
    "llama-7b": _model("llama-7b", 1, 4096),
    "mistral-7b": _model("mistral-7b", 2, 2048),
    "llama-3-8b": _model("llama-3-8b", 1, 2048),
    "llama-3-8b-plain": _model("llama-3-8b", 1, 4096, at="torchtitan"),
}

FACTORS: Mapping[str, tuple[str, ...]] = {
    "model": tuple(MODELS),
    "optimizer": OPTIMIZERS,
    "precision": PRECISIONS,
    "recompute": RECOMPUTES,
    "loss": LOSSES,
    "attention": ("flash", "eager"),
    "hold_logits": ("no", "yes"),
    "micro_batches": ("1", "3"),
    "clip": ("no", "yes"),
}
TRIPLES = (
    ("precision", "attention", "recompute"),
    ("precision", "optimizer", "clip"),
    ("precision", "recompute", "loss"),
    ("precision", "loss", "hold_logits"),
    ("precision", "micro_batches", "loss"),
)


def allowed(row: Mapping[str, str]) -> bool:
    """Whether the choices made so far can go together."""
    if row.get("hold_logits") == "yes" and row.get("loss", "full") != "full":
        return False  # only the full loss makes all logits
    # transformers gives Gemma 2 eager attention alone.
    return not (row.get("model") == "gemma-2-2b" and row.get("attention") == "flash")


def groups() -> tuple[tuple[str, ...], ...]:
    """The factors whose every combination must be in a row."""
    return (*combinations(FACTORS, 2), *TRIPLES)


def combinations_wanted() -> Iterator[tuple[tuple[str, str], ...]]:
    """Every combination that must be in a row, as ((factor, choice), …)."""
    for names in groups():
        for choices in product(*(FACTORS[name] for name in names)):
            pairs = tuple(zip(names, choices, strict=True))
            if allowed(dict(pairs)):
                yield pairs


def chosen() -> tuple[Row, ...]:
    """Rows that are wanted whatever else is covered: the runs that people ask about."""
    base = {
        "optimizer": "adamw-foreach",
        "precision": "bf16",
        "recompute": "none",
        "loss": "full",
        "attention": "flash",
        "hold_logits": "no",
        "micro_batches": "1",
        "clip": "no",
    }
    rows = []
    # LLaMA 7B by each precision, kept whole and recomputed; as transformers' Trainer does it.
    for precision, recompute in product(PRECISIONS, ("none", "full")):
        changed = {"model": "llama-7b", "precision": precision, "recompute": recompute}
        rows.append({**base, **changed, "optimizer": "adamw-fused"})
    # Every model as it is most often trained: autocast, fused AdamW, clipping.
    for model in FACTORS["model"]:
        row = {**base, "model": model, "precision": "autocast", "optimizer": "adamw-fused"}
        row |= {"clip": "yes", "attention": "eager" if model == "gemma-2-2b" else "flash"}
        rows.append(row)
    # A small model of each implementation by every precision and recomputation, and one of them by
    # both attentions.
    for model in ("llama-3.2-1b", "llama-3.2-1b-plain", "gpt2"):
        for precision, recompute in product(PRECISIONS, RECOMPUTES):
            changed = {"model": model, "precision": precision, "recompute": recompute}
            rows.append({**base, **changed})
            if model == "llama-3.2-1b":
                rows.append({**base, **changed, "attention": "eager"})
    return tuple(rows)


def rows() -> tuple[Row, ...]:
    """The chosen rows, then those that cover what they leave out."""
    found = list(dict.fromkeys(tuple(row[name] for name in FACTORS) for row in chosen()))
    wanted = dict.fromkeys(combinations_wanted())
    for choices in found:
        for combination in _covered(dict(zip(FACTORS, choices, strict=True))):
            wanted.pop(combination, None)
    while wanted:
        row = _next(wanted, found)
        found.append(tuple(row[name] for name in FACTORS))
        for combination in _covered(row):
            wanted.pop(combination, None)
    return tuple(dict(zip(FACTORS, choices, strict=True)) for choices in found)


def cases() -> tuple[Case, ...]:
    """Every case of the table, in order."""
    return tuple(case_of(row) for row in rows())


def case_of(row: Mapping[str, str]) -> Case:
    """The step that a row of choices means."""
    base = MODELS[row["model"]].to_row()
    return Case.from_row({**base, **{k: v for k, v in row.items() if k != "model"}})


def _covered(row: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], ...]]:
    for names in groups():
        yield tuple((name, row[name]) for name in names)


def _next(wanted: Wanted, found: Sequence[tuple[str, ...]]) -> Row:
    """A row with the first combination still wanted, and as many others as it can hold."""
    row = dict(next(iter(wanted)))
    while len(row) < len(FACTORS):
        best: tuple[int, int] | None = None
        for place, (name, choices) in enumerate(FACTORS.items()):
            for choice in choices if name not in row else ():
                trial = {**row, name: choice}
                if not allowed(trial):
                    continue
                # Of equal gains, what few rows have so far; then the first.
                used = sum(1 for earlier in found if earlier[place] == choice)
                worth = (_gain(trial, wanted), -used)
                if best is None or worth > best:
                    best, better = worth, trial
        row = better
    return row


def _gain(row: Row, wanted: Wanted) -> int:
    """How many wanted combinations the row holds."""
    return sum(
        1
        for names in groups()
        if all(name in row for name in names) and tuple((n, row[n]) for n in names) in wanted
    )
