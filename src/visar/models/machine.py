"""The hardware available to run models: cores, memory and graphics card."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from dataclasses import dataclass

from visar.models.devices import usable_cores

_SECONDS_TO_ANSWER = 10
_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True)
class GraphicsCard:
    """A graphics card that can run models."""

    name: str
    memory: int
    """Memory in bytes. On Apple chips, the machine's memory, which the GPU shares."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware of a machine."""

    system: str
    cores: int
    memory: int | None
    """Memory in bytes; None if unknown."""
    card: GraphicsCard | None

    @property
    def summary(self) -> str:
        """A one-line description.

        >>> Machine("Linux x86_64", 4, 8 * 2**30, None).summary
        'Linux x86_64, 4 cores, 8 GB of memory, no graphics card that torch can use'
        """
        memory = "" if self.memory is None else f", {gigabytes(self.memory)} GB of memory"
        card = "no graphics card that torch can use"
        if self.card is not None:
            card = f"{self.card.name} with {gigabytes(self.card.memory)} GB"
        return f"{self.system}, {self.cores} cores{memory}, {card}"


def gigabytes(count: int) -> int:
    return round(count / 2**30)


def this_machine() -> Machine:
    """Return the hardware of this machine, without using the network."""
    memory = memory_bytes()
    system = f"{platform.system()} {platform.machine()}"
    return Machine(system, usable_cores(), memory, _card(memory))


def memory_bytes() -> int | None:
    """Return the memory of this machine in bytes; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # for example on Windows
        return None


def _card(memory: int | None) -> GraphicsCard | None:
    """Return the first card torch can use; without torch, the first the driver lists."""
    if importlib.util.find_spec("torch") is None:
        return _card_from_driver()
    import torch

    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(0)
        return GraphicsCard(found.name, int(found.total_memory))
    if torch.backends.mps.is_available():
        return GraphicsCard("Apple graphics", memory or 0)
    return None


def _card_from_driver() -> GraphicsCard | None:
    try:
        output = subprocess.run(  # noqa: S603 - fixed arguments
            ["nvidia-smi", *_QUERY],  # noqa: S607 - its location depends on the driver package
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS_TO_ANSWER,
        ).stdout
        name, _, megabytes = output.splitlines()[0].rpartition(",")
        return GraphicsCard(name.strip(), int(megabytes) * 2**20)
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
