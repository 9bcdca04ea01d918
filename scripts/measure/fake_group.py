"""A process group of GPUs that are not there, and a ``torch.cuda`` that can name streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from .backend import python_dispatch, torch
from .storages import unseen

distributed: Any = import_module("torch.distributed")


class _Event:
    """Has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> _Event:
        return self

    def wait(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


class _Stream:
    """Waits for nothing: fake operations take no time, and all run in order."""

    device = torch.device("cuda", 0)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, *_: Any) -> None: ...

    def wait_event(self, *_: Any) -> None: ...

    def record_event(self, *_: Any) -> _Event:
        return _Event()

    def synchronize(self) -> None: ...


def _no_stream(_stream: Any = None) -> AbstractContextManager[None]:
    return nullcontext()


_STREAM = _Stream()
_GPU = SimpleNamespace(name="fake", major=9, minor=0, total_memory=80 << 30)
_CUDA: dict[str, Any] = {
    "Stream": _Stream,
    "Event": _Event,
    "current_stream": lambda *_: _STREAM,
    "default_stream": lambda *_: _STREAM,
    "stream": _no_stream,
    "current_device": lambda: 0,
    "set_device": lambda *_: None,
    "device_count": lambda: 1,
    "synchronize": lambda *_: None,
    "get_device_properties": lambda *_: _GPU,
    "get_device_name": lambda *_: _GPU.name,
    "is_current_stream_capturing": lambda: False,
    "_lazy_init": lambda: None,
}


@contextmanager
def _real_meshes() -> Iterator[None]:
    """A mesh looks its GPU up among numbers, which it needs even in fake mode."""
    mesh = import_module("torch.distributed.device_mesh").DeviceMesh
    find = mesh._compute_coordinate_on_dim

    def found(self: Any) -> Any:
        with python_dispatch._disable_current_modes():
            return find(self)

    mesh._compute_coordinate_on_dim = found
    try:
        yield
    finally:
        mesh._compute_coordinate_on_dim = find


@contextmanager
def _unseen_shapes() -> Iterator[None]:
    """A tensor of several GPUs works out its whole shape on fake tensors of its own."""
    kind = import_module("torch.distributed.tensor._sharding_prop").ShardingPropagator
    name = "_propagate_tensor_meta_non_cached"
    work_out = getattr(kind, name)

    def worked_out(*arguments: Any, **options: Any) -> Any:
        with unseen():
            return work_out(*arguments, **options)

    setattr(kind, name, worked_out)
    try:
        yield
    finally:
        setattr(kind, name, work_out)


@contextmanager
def fake_group(world: int, rank: int = 0) -> Iterator[None]:
    """Within, this process is one of so many; collectives return at once."""
    store = import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
    before = {name: getattr(torch.cuda, name) for name in _CUDA}
    current = torch.accelerator.current_stream
    torch.accelerator.current_stream = _CUDA["current_stream"]
    for name, stand_in in _CUDA.items():
        setattr(torch.cuda, name, stand_in)
    distributed.init_process_group("fake", rank=rank, world_size=world, store=store)
    try:
        with _real_meshes(), _unseen_shapes():
            yield
    finally:
        distributed.destroy_process_group()
        torch.accelerator.current_stream = current
        for name, original in before.items():
            setattr(torch.cuda, name, original)
