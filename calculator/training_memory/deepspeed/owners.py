"""Stages 1 and 2 of a deep model: layers that one GPU owns and that say the same.

Whose a weight is decides what happens to its gradient, and a GPU's share ends somewhere in a layer.
But between two such places layers say what another one said that found the bucket as full; rounds
of them are passed over, and few are worked out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence

from ..events import Event
from ..recording import Section
from ..records import dataclass
from ..weaving import Heard
from .buckets import Buckets, Run
from .flat import Group

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: So few layers are heard sooner than passed over.
_FEW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _After:
    """What a layer says, and where things stand after it, told by how far it is from the layer."""

    heard: Heard
    inside: Sequence[Run]
    filled: int
    since: int
    has_bucket: bool
    has_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """At which layer something is, and who owns that of each group."""

    layer: int
    step: int
    owners: list[int] | None


class OwnersBuckets(Buckets):
    """:class:`Buckets` that say of a layer what they said of another one."""

    def __init__(self, groups: tuple[Group, ...], **given: Any) -> None:
        super().__init__(groups, **given)
        #: The section that is heard, its layer, since which of its layers the bucket is filled, and
        #: whether there is something of another section in it.
        self._section: Section | None = None
        self._layer = self._since = 0
        self._is_foreign = False
        #: Of each group how many weights a layer has; of those that have any besides how many
        #: numbers a GPU owns, where layers begin, and where each weight begins and ends.
        self._each = [len(group.weights.layer) for group in groups]
        self._layers = [
            (
                group.share,
                group.weights.of_layers.start,
                each,
                group.starts,
                (*group.starts, group.starts[-1] + group.numels[-1]),
            )
            for group, each in zip(groups, self._each, strict=True)
            if each
        ]
        #: What is larger than a bucket is kept in mind to the end by stage 1, weight by weight.
        larger = any(max(group.numels) > self.size for group in groups)
        self._is_plain = self.stage == 1 and larger
        self._known: dict[Hashable, _After] = {}

    def hear(self, section: Section, layer: int) -> Heard:
        """What happens as gradients are there: before each is dropped, and after."""
        self._come_to(section)
        self._layer = layer
        key = self._stands(layer) if section.part[0] == "layer" else None
        if key is None:
            return super().hear(section, layer)
        after = self._known.get(key)
        if after is None:
            heard = super().hear(section, layer)
            self._known[key] = _After(
                heard=heard,
                inside=self._moved(self.inside, -layer),
                filled=self.filled,
                since=self._since - layer,
                has_bucket=self.has_bucket,
                has_own=self.has_own,
            )
            return heard
        self.inside = self._moved(after.inside, layer)
        self.filled = after.filled
        self._since = after.since + layer
        self.has_bucket, self.has_own = after.has_bucket, after.has_own
        return after.heard

    def _come_to(self, section: Section) -> None:
        if section is not self._section:
            self._section, self._known = section, {}
            self._is_foreign = bool(self.inside)

    def _stands(self, layer: int) -> Hashable | None:
        """All that decides what a layer says; None where another layer says something else.

        As where a GPU's share ends in the layer or in what is in the bucket.
        """
        if self._is_plain:
            return None
        if self.waits:
            return self.has_bucket
        if self.inside and self._is_foreign:
            return None
        since = self._since if self.inside else layer
        owners = self._owners(min(since, layer), max(since, layer))
        if owners is None:
            return None
        alike = [(owner - owners[0], owner == self.rank) for owner in owners]
        return (since - layer, len(self.inside), self.has_bucket, self.has_own, *alike)

    def _owners(self, low: int, high: int) -> list[int] | None:
        """Of each group who owns its weights in some layers, if it is one GPU."""
        found = []
        for share, begin, each, starts, until in self._layers:
            owner = starts[begin + low * each] // share
            if (until[begin + (high + 1) * each] - 1) // share != owner:
                return None
            found.append(owner)
        return found

    def _moved(self, runs: Sequence[Run], layers: int) -> list[Run]:
        """The same weights of so many layers further."""
        by = [layers * each for each in self._each]
        return [(number, place + by[number], end + by[number]) for number, place, end in runs]

    def end(self) -> Iterator[Event]:
        """As ever; the next backward pass has sections of its own."""
        yield from super().end()
        self._section = None

    def add(self, run: Run, numel: int) -> list[Event]:
        """As ever; and keeps in mind since when the bucket is filled."""
        events = super().add(run, numel)
        if len(self.inside) == 1:
            self._since, self._is_foreign = self._layer, False
        return events

    # -- rounds of layers -------------------------------------------------------------------------

    def mark(self, section: Section, layer: int, step: int) -> tuple[Hashable, object] | None:
        """What is in the bucket, and who owns it; None where it is of several GPUs."""
        self._come_to(section)
        key = self._stands(layer)
        if key is None:
            return None
        return key, _Mark(layer=layer, step=step, owners=self._owners(layer, layer))

    def jump(self, before: object, now: object, left: int) -> int:
        """Pass over rounds of layers of one owner, whose gradients fill as many buckets alike."""
        assert isinstance(before, _Mark)
        assert isinstance(now, _Mark)
        length = before.layer - now.layer
        if self.waits:
            return left // length
        owners, step = now.owners, now.step
        if before.owners != owners or owners is None or step != -1:
            return 0
        # A backward pass ends in the owner's lowest layer, of any group.
        lowest = 0
        for owner, (share, begin, each, starts, _) in zip(owners, self._layers, strict=True):
            lowest = max(lowest, -(-(bisect_left(starts, owner * share) - begin) // each))
        rounds = min(left, now.layer - lowest + 1) // length
        if rounds * length < _FEW:
            return 0
        by = -rounds * length
        self.inside = self._moved(self.inside, by)
        self._since += by
        return rounds
