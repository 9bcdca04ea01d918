"""Two steps walked abreast: each event of one beside the event of the other that is the same.

Both trees are gone through part by part. The events of a part are put beside each other by what
they are called, in the order in which they come; a repeat of layers or micro-batches is gone
through once. Every event of either tree is in exactly one pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from .events import Counters, Event, Group, Node, Repeat
from .records import dataclass
from .walk import Strip, left

#: What tells a part of a step from the parts beside it, or an event from the events beside it.
_Key = tuple[str, ...]

#: What ends the label of an event that takes memory, and how it is kept.
KEPT, MADE = " is made and kept", " is made"
_COUNTED = tuple(f" of micro-batch {{{name}}}" for name in ("forward", "backward", "weights"))


class Spot:
    """A node of one of the steps, most often an event, in the first turn of the repeats around it.

    ``before_bytes`` is what is held just before; ``times`` how often it comes in a step, in the
    ``repeats`` around it, outermost first. ``strip`` is the recorded part that it is event ``at``
    of, if it is of one. There are thousands of these, so they are no records.
    """

    __slots__ = ("at", "before_bytes", "node", "repeats", "strip", "times")

    def __init__(
        self,
        node: Node,
        before_bytes: int = 0,
        times: int = 1,
        repeats: tuple[Repeat, ...] = (),
        strip: Strip | None = None,
        at: int = 0,
    ) -> None:
        self.node = node
        self.before_bytes = before_bytes
        self.times = times
        self.repeats = repeats
        self.strip = strip
        self.at = at

    @property
    def event(self) -> Event:
        """The node where it is an event, as in every pair."""
        assert isinstance(self.node, Event)
        return self.node

    @property
    def kept(self) -> bool:
        """Whether it is kept for the backward pass."""
        return self.event.label.endswith(KEPT)

    @property
    def turns(self) -> tuple[Counters, Counters]:
        """The counters around it in the first and in the last turn of its repeats."""
        first, last = dict[str, int](), dict[str, int]()
        for repeat in self.repeats:
            first |= repeat.counted(0)
            last |= repeat.counted(repeat.count - 1)
        return first, last

    def inside(self) -> list[Spot]:
        """What is in the node: the children of a group, or the child of a repeat that comes."""
        node = self.node
        if isinstance(node, Repeat):
            if not node.count:
                return []
            around = (*self.repeats, node)
            return [Spot(node.child, self.before_bytes, self.times * node.count, around)]
        if not isinstance(node, Group):
            return []
        strip = node if isinstance(node, Strip) else None
        found, before = list[Spot](), self.before_bytes
        for at, child in enumerate(node.children):
            found.append(Spot(child, before, self.times, self.repeats, strip, at))
            before += child.bytes if isinstance(child, Event) else sum(left(child))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An event of two steps; a side is None where its step has no such event in this part.

    ``key`` tells it from all others, in any two steps; ``moved`` says that other events of the part
    come before it in one step and after it in the other.
    """

    key: tuple[object, ...]
    left: Spot | None
    right: Spot | None
    moved: bool = False

    @property
    def shown(self) -> Spot:
        """The side that there is, the first of two."""
        spot = self.left or self.right
        assert spot is not None
        return spot

    @property
    def alike(self) -> bool:
        """Whether both steps have it, of the same size and as often, at the same point."""
        one, other = self.left, self.right
        return (
            one is not None
            and other is not None
            and not self.moved
            and one.event.bytes == other.event.bytes
            and one.event.category is other.event.category
            and one.times == other.times
            and one.kept is other.kept
        )

    @property
    def change_bytes(self) -> int:
        """How much more the right step takes, or gives back if less than 0, by all of them."""
        return _all_bytes(self.right) - _all_bytes(self.left)


def _all_bytes(spot: Spot | None) -> int:
    return spot.event.bytes * spot.times if spot else 0


def abreast(one: Node, other: Node) -> list[Pair]:
    """Both steps' events in pairs, in order; what only one has stands where it comes there."""
    pairs: list[Pair] = []
    _both(Spot(one), Spot(other), (), pairs)
    return pairs


def _both(one: Spot, other: Spot, path: tuple[object, ...], pairs: list[Pair]) -> None:
    """Two nodes of the same name."""
    if isinstance(one.node, Event):
        pairs.append(Pair(key=path, left=one, right=other))
        return
    ones, others = one.inside(), other.inside()
    keys, other_keys = _keys(ones), _keys(others)
    matched = _matched(keys, other_keys, [*map(_size, ones)], [*map(_size, others)])
    seen: dict[_Key, int] = {}

    def named(key: _Key) -> tuple[object, ...]:
        number = seen[key] = seen.get(key, -1) + 1
        return (*path, key, number)

    for here, there, moved in matched:
        key = keys[here] if here is not None else other_keys[there or 0]
        if here is None or there is None:
            _only(
                ones[here] if here is not None else None,
                None if there is None else others[there],
                named(key),
                pairs,
            )
        elif moved:
            pairs.append(Pair(key=named(key), left=ones[here], right=others[there], moved=True))
        else:
            _both(ones[here], others[there], named(key), pairs)


def _only(
    one: Spot | None, other: Spot | None, path: tuple[object, ...], pairs: list[Pair]
) -> None:
    """A node that only one of the steps has."""
    here = one or other
    assert here is not None
    if isinstance(here.node, Event):
        pairs.append(Pair(key=path, left=one, right=other))
        return
    inside = here.inside()
    seen: dict[_Key, int] = {}
    for key, child in zip(_keys(inside), inside, strict=True):
        number = seen[key] = seen.get(key, -1) + 1
        _only(child if one else None, None if one else child, (*path, key, number), pairs)


_Match = tuple[int | None, int | None, bool]


def _matched(
    one: Sequence[_Key],
    other: Sequence[_Key],
    sizes: Sequence[int | None],
    other_sizes: Sequence[int | None],
) -> Iterator[_Match]:
    """The places of what is the same in two parts, in order, and whether its order is another.

    What comes at another point is known by its size as well.
    """
    if one == other:
        yield from ((at, at, False) for at in range(len(one)))
        return
    codes = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    differing = [code for code in codes if code[0] != "equal"]
    waiting: dict[tuple[_Key, int | None], list[int]] = {}
    for _, first, last, _, _ in differing:
        for at in range(first, last):
            if sizes[at] is not None:
                waiting.setdefault((one[at], sizes[at]), []).append(at)
    moved: dict[int, int] = {}
    for _, _, _, start, end in differing:
        for at in range(start, end):
            if places := waiting.get((other[at], other_sizes[at])):
                moved[at] = places.pop(0)
    gone = frozenset(moved.values())
    for code, first, last, start, end in codes:
        if code == "equal":
            yield from ((at, at - first + start, False) for at in range(first, last))
            continue
        yield from ((at, None, False) for at in range(first, last) if at not in gone)
        yield from ((moved.get(at), at, at in moved) for at in range(start, end))


def _size(spot: Spot) -> int | None:
    return spot.node.bytes if isinstance(spot.node, Event) else None


def _keys(nodes: Sequence[Spot]) -> list[_Key]:
    """What each node of a part is known by."""
    found: list[_Key] = []
    run: list[int] = []
    for at, here in enumerate(nodes):
        node = here.node
        if isinstance(node, Event):
            found.append(("event", "+" if node.bytes >= 0 else "-", plain(node.label)))
            continue
        if isinstance(node, Group):
            found.append(("group", plain(node.label)))
            continue
        # Of layers in several repeats the first and the last are what they are in any number.
        name = plain(node.child.label) if isinstance(node.child, Event | Group) else ""
        if run and found[run[0]][1] != name:
            run = []
        run = [*run, at] if run and run[-1] == at - 1 else [at]
        found.append(("repeat", name, "first"))
        for place in run[1:]:
            found[place] = ("repeat", name, "last" if place == run[-1] else "between")
    return found


@lru_cache(maxsize=4096)
def plain(label: str) -> str:
    """A label without the micro-batch's number and without whether what is made is kept."""
    for counted in _COUNTED:
        label = label.replace(counted, "")
    return label.removesuffix(KEPT).removesuffix(MADE)
