"""The GPUs known by name: the memory each promises and the memory it was seen to offer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from .catalog import parse_lines, parse_value, read_tables
from .errors import InputError, nearest
from .records import dataclass

#: The GPU meant where none is named: the textbook's "one 80 GB accelerator".
DEFAULT = "80gb"

_UNITS = {"B": 1, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast a GPU is by its data sheet.

    ``flops`` and ``fp32_flops`` are 16-bit and 32-bit matrix products' operations a second;
    ``link_bytes``, ``network_bytes`` and ``host_bytes`` what it sends in a second, one way, to GPUs
    of the same machine, to GPUs of another, and to the CPU's memory; ``source`` says where that is
    written.
    """

    flops: int
    fp32_flops: int
    link_bytes: int
    network_bytes: int
    host_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of GPU.

    ``memory_bytes`` is its name's, in decimal gigabytes; ``usable_bytes`` what PyTorch or CUDA
    reported as the device's total, None where no published figure was found; ``source`` says where
    that was, and ``no_rates`` why there are no ``rates``. The second is often the larger: "80 GB"
    are sold as 80 GiB less what the driver keeps.
    """

    id: str
    name: str
    memory_bytes: int
    usable_bytes: int | None
    source: str
    rates: Rates | None
    no_rates: str | None = None


@lru_cache(maxsize=1)
def gpus() -> Mapping[str, Gpu]:
    """Every known GPU by its id, in the order of the file: the textbook's first."""
    tables = read_tables("gpus.toml")
    return MappingProxyType({gpu_id: _gpu(gpu_id, table) for gpu_id, table in tables.items()})


def get(gpu_id: object) -> Gpu:
    """The GPU of that id. Raises :class:`InputError` with the nearest id where there is none."""
    known = gpus()
    if not isinstance(gpu_id, str) or gpu_id not in known:
        # All of them: there is nowhere else to look them up from an error message.
        allowed = "allowed: " + ", ".join(known)
        raise InputError("gpu", gpu_id, allowed, suggestion=nearest(gpu_id, known))
    return known[gpu_id]


def _gpu(gpu_id: str, table: str) -> Gpu:
    values = {key: parse_value(text) for key, text in parse_lines(table).items()}
    usable = values.get("usable")
    return Gpu(
        id=gpu_id,
        name=str(values["name"]),
        memory_bytes=int(values["memory_bytes"]),
        usable_bytes=None if usable is None else _bytes(str(usable)),
        source=str(values["source"]),
        rates=_rates(values) if "rates" in values else None,
        no_rates=str(values["no_rates"]) if "no_rates" in values else None,
    )


def _rates(values: Mapping[str, object]) -> Rates:
    return Rates(
        flops=_whole(values["tflops"], 10**12),
        fp32_flops=_whole(values["fp32_tflops"], 10**12),
        link_bytes=_whole(values["link"], 10**9),
        network_bytes=_whole(values["network"], 10**9),
        host_bytes=_whole(values["host"], 10**9),
        source=str(values["rates"]),
    )


def _whole(printed: object, unit: int) -> int:
    """A decimal number of units as printed, "19.5", in whole-number arithmetic."""
    whole, _, decimals = str(printed).partition(".")
    return int(whole + decimals) * unit // int(10 ** len(decimals))


def _bytes(printed: str) -> int:
    """The bytes of a size as it was printed, "79.10 GiB", in whole-number arithmetic."""
    number, unit = printed.split(" ")
    return _whole(number, _UNITS[unit])
