"""Records behave as the dataclasses that they are to a type checker."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from functools import cached_property

import pytest

from training_memory import records


@records.dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    name: str
    size: int = 3
    notes: dict[str, int] = records.field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")
        object.__setattr__(self, "name", self.name.strip())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    name: str
    size: int = 3
    notes: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)


@records.dataclass(frozen=True)
class Open:
    first: int
    second: int = 2

    @cached_property
    def both(self) -> int:
        return self.first + self.second


def test_fields_defaults_and_factories() -> None:
    one, other = Slotted(name=" a "), Slotted(name="a", size=3)
    assert (one.name, one.size, one.notes) == ("a", 3, {})
    assert one.notes is not other.notes
    assert [field.name for field in records.fields(Slotted)] == ["name", "size", "notes"]


def test_equality_hash_and_repr_are_a_dataclasss() -> None:
    one, noted = Slotted(name="a", size=4), Slotted(name="a", size=4, notes={"x": 1})
    assert one == noted
    assert hash(one) == hash(noted) == hash(Standard(name="a", size=4))
    assert one != Slotted(name="a", size=5)
    assert one != Standard(name="a", size=4)  # type: ignore[comparison-overlap]
    assert repr(one).replace("Slotted", "Standard") == repr(Standard(name="a", size=4))


@pytest.mark.parametrize("record", [Slotted(name="a"), Open(1)])
def test_nothing_can_be_changed(record: Slotted | Open) -> None:
    name = records.fields(record)[0].name
    with pytest.raises(records.FrozenRecordError):
        setattr(record, name, "b")
    with pytest.raises(AttributeError):
        delattr(record, name)


def test_a_slotted_record_has_no_room_for_more() -> None:
    with pytest.raises(AttributeError):
        _ = Slotted(name="a").__dict__


@pytest.mark.parametrize(
    ("args", "given"),
    [((), {}), (("a",), {}), ((), {"name": "a", "length": 1}), ((), {"size": 1})],
)
def test_only_its_own_fields_are_taken(args: tuple[str, ...], given: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Slotted(*args, **given)  # type: ignore[arg-type]


def test_positions_where_they_are_allowed() -> None:
    assert Open(1).both == 3
    assert Open(1, 5) == Open(first=1, second=5)
    with pytest.raises(TypeError):
        Open(1, 2, 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Open(1, first=2)  # type: ignore[misc]


def test_the_check_after_making_runs() -> None:
    with pytest.raises(ValueError, match="size"):
        Slotted(name="a", size=-1)


def test_the_standard_librarys_functions_take_records() -> None:
    one = Slotted(name="a", size=4, notes={"x": 1})
    assert dataclasses.is_dataclass(one)
    assert dataclasses.replace(one, size=7) == Slotted(name="a", size=7)
    assert dataclasses.asdict(one) == {"name": "a", "size": 4, "notes": {"x": 1}}
    assert [field.name for field in dataclasses.fields(Open)] == ["first", "second"]


@pytest.mark.parametrize("record", [Slotted(name="a", notes={"x": 1}), Open(1, 5)])
def test_copies_and_pickles(record: Slotted | Open) -> None:
    for twin in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert twin == record
        assert repr(twin) == repr(record)


def test_records_are_frozen_or_refused() -> None:
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(type("Loose", (), {"__annotations__": {}}))


@pytest.mark.parametrize("slots", [True, False])
def test_a_class_of_which_many_are_made_stays_as_it_is(slots: bool) -> None:
    @records.dataclass(frozen=True, slots=slots, kw_only=True)  # type: ignore[literal-required]
    class Many:
        name: str
        size: int = 3

    plain = Many.__init__
    made = [Many(name=str(at), size=at) for at in range(500)]
    assert Many.__init__ is not plain
    assert [one.size for one in made] == list(range(500))
    assert Many(name="a") == Many(name="a", size=3)
    assert Many(name="a") != Many(name="b")
    for wrong in ({"size": 1}, {"name": "a", "length": 2}):
        with pytest.raises(TypeError):
            Many(**wrong)
    with pytest.raises(TypeError):
        Many("a")  # type: ignore[call-arg]
    with pytest.raises(records.FrozenRecordError):
        made[0].size = 4  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(Open(1))) == Open(1)
