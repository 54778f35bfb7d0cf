"""What this machine has to run models with: its memory, and its graphics card."""

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
    """A card that models can run on."""

    name: str
    memory: int
    """In bytes; on Apple's chips that of the machine, which they share."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What models can use here."""

    system: str
    cores: int
    memory: int | None
    """In bytes; None if the system does not tell."""
    card: GraphicsCard | None

    @property
    def summary(self) -> str:
        """One line for people.

        >>> Machine("Linux x86_64", 4, 8 * 2**30, None).summary
        'Linux x86_64, 4 cores, 8 GB of memory, no graphics card that torch can use'
        """
        memory = "" if self.memory is None else f", {gigabytes(self.memory)} GB of memory"
        card = "no graphics card that torch can use"
        if self.card is not None:
            card = f"{self.card.name} with {gigabytes(self.card.memory)} GB"
        return f"{self.system}, {self.cores} cores{memory}, {card}"


def gigabytes(count: int) -> int:
    """Bytes in whole gigabytes, as a machine's memory is told."""
    return round(count / 2**30)


def this_machine() -> Machine:
    """Look at this machine; nothing is asked of a network."""
    memory = _memory()
    system = f"{platform.system()} {platform.machine()}"
    return Machine(system, usable_cores(), memory, _card(memory))


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows, and what knows no such question
        return None


def _card(memory: int | None) -> GraphicsCard | None:
    """Return the first card that the torch here can use; without torch, that of the driver."""
    if importlib.util.find_spec("torch") is None:
        return _card_of_driver()
    import torch

    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(0)
        return GraphicsCard(found.name, int(found.total_memory))
    if torch.backends.mps.is_available():
        return GraphicsCard("Apple graphics", memory or 0)
    return None


def _card_of_driver() -> GraphicsCard | None:
    try:
        said = subprocess.run(  # noqa: S603 - these words and no others
            ["nvidia-smi", *_QUERY],  # noqa: S607 - wherever the driver's package puts it
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS_TO_ANSWER,
        ).stdout
        name, _, megabytes = said.splitlines()[0].rpartition(",")
        return GraphicsCard(name.strip(), int(megabytes) * 2**20)
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
