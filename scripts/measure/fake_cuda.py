"""Build and load the library that lets a CPU-only PyTorch trace CUDA tensors that hold no data."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_cuda.cpp")
CACHE = Path(__file__).parents[2] / ".cache" / "measure"


class UnavailableError(RuntimeError):
    """Why nothing can be traced here, and what would help."""


def missing() -> str:
    """What tracing needs and this machine lacks, or the empty text."""
    for package in ("torch", "transformers", "bitsandbytes", "peft"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    if not library_path().exists() and _compiler() is None:
        return "no C++ compiler (c++, g++ or clang++) is installed"
    return ""


def load() -> None:
    """Load the library, building it first where needed. Before PyTorch is imported, or too late.

    Raises :class:`UnavailableError` with what is missing.
    """
    if why := missing():
        raise UnavailableError(f"Nothing can be traced: {why}.")
    if "torch" in sys.modules:
        # PyTorch asks which accelerator exists once, as it is imported, and keeps the answer.
        raise UnavailableError("Nothing can be traced: PyTorch was imported before the fake GPU.")
    path = library_path()
    if not path.exists():
        _build(path)
    ctypes.CDLL(str(path), mode=os.RTLD_GLOBAL | os.RTLD_NOW)


def library_path() -> Path:
    """Where the library belongs: one for each source text and PyTorch."""
    made_of = (
        SOURCE.read_text(encoding="utf-8"),
        importlib.metadata.version("torch"),
        str(_torch_folder()),
    )
    name = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    return CACHE / f"fake_cuda-{name}.so"


def _torch_folder() -> Path:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise UnavailableError("Nothing can be traced: torch is not installed.")
    return Path(found.origin).parent


def _compiler() -> str | None:
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return found
    return None


def _build(path: Path) -> None:
    torch_folder, compiler = _torch_folder(), _compiler()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: two processes may build at once, and neither may load half a file.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        command = [
            *(compiler or "c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", str(SOURCE)),
            *("-o", str(built)),
            *("-I", str(torch_folder / "include")),
            *("-I", str(torch_folder / "include" / "torch" / "csrc" / "api" / "include")),
            *("-L", str(torch_folder / "lib"), "-lc10", "-ltorch_cpu"),
            f"-Wl,-rpath,{torch_folder / 'lib'}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"The fake GPU could not be built:\n{done.stderr}")
        built.replace(path)
