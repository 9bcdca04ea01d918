"""What is said when an input cannot be: the field, the value, what is allowed, the nearest name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def nearest(value: object, names: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The name most like ``value``, or None where nothing is as alike as ``cutoff`` (0 to 1)."""
    # difflib is slow to import and only ever needed for a mistake.
    from difflib import get_close_matches

    given = str(value).lower()
    by_lower = {name.lower(): name for name in names}
    found = get_close_matches(given, list(by_lower), n=1, cutoff=cutoff)
    if not found and len(given) > 1:
        # Someone may have typed the beginning of a longer name ("h1oo" for "h100-80gb").
        by_lower = {name[: len(given)]: by_lower[name] for name in reversed(by_lower)}
        found = get_close_matches(given, list(by_lower), n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


#: As much of what was given is said again; someone may have pasted a whole file.
_SAID = 500


def shortened(text: str) -> str:
    """A text as it is said again: as it is, or where it is long its beginning and its length."""
    if len(text) <= _SAID:
        return text
    return f"{text[:_SAID]}… ({len(text):,} characters)"


class InputError(ValueError):
    """One field that cannot be as given.

    ``field`` is the name as in a run's JSON (``micro_batch``), ``value`` what was given,
    ``allowed`` a phrase for what would do, ``suggestion`` the nearest valid name if one is near.
    """

    def __init__(
        self, field: str, value: object, allowed: str, *, suggestion: str | None = None
    ) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        self.suggestion = suggestion
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """One sentence for a person, beginning with the field."""
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        said = shortened(repr(self.value))
        return f"{self.field}: {said} cannot be used; {self.allowed}.{hint}"

    def to_json(self) -> dict[str, object]:
        """The same facts for a program; the value as text, since it may be anything."""
        return {
            "field": self.field,
            "value": self.value if isinstance(self.value, int | str | bool) else repr(self.value),
            "allowed": self.allowed,
            "suggestion": self.suggestion,
            "message": self.message,
        }

    @classmethod
    def unknown_name(cls, field: str, value: object, names: Sequence[str]) -> InputError:
        """For a choice that is none of ``names``."""
        shown = ", ".join(names) if len(names) <= 12 else f"one of {len(names)} names"
        if field == "model" and len(names) > 12:
            shown += ", which training-memory models lists"
        return cls(field, value, f"allowed: {shown}", suggestion=nearest(value, names))


class InputErrors(ValueError):  # noqa: N818  # several errors in one
    """Every field of one request that cannot be, together, so that a reader mends them at once."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(error.message for error in self.errors))
