"""Models by the names that other programs have for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ..catalog import models

#: Words in a published name that do not change the shape.
_ASIDE = frozenset({"instruct", "chat", "base", "hf", "it", "pt", "meta", "bnb", "4bit"})


def model_id(name: str) -> str | None:
    """The catalog's id of a model named as on Hugging Face or as in a catalog; None for others.

    The account does not matter, nor whether it was tuned to instructions: the shape is the same.
    """
    return _known().get(_key(name))


@lru_cache(maxsize=1)
def _known() -> Mapping[str, str]:
    return dict(_names())


def _names() -> Iterator[tuple[str, str]]:
    for known, published in models().published():
        yield _key(published), known
    for known in models():
        yield _key(known), known


def _key(name: str) -> str:
    last = name.rstrip("/").rpartition("/")[2].lower()
    words = [word for word in re.split(r"[-_]", last) if word and word not in _ASIDE]
    return re.sub(r"[^a-z0-9]", "", "".join(words))
