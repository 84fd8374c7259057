"""Peers by kernel: what others that are installed take for the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ArgumentError, MissingPackageError, near
from ..timing import Launch
from . import _humming, _numpy, _others, _torch
from ._peer import Given, Made, Peer

__all__ = ["PEERS", "Given", "Made", "Peer", "Ready", "of", "ready", "refuse_missing"]

PEERS: tuple[Peer, ...] = (*_torch.PEERS, *_numpy.PEERS, *_humming.PEERS, *_others.PEERS)
_PACKAGES = {"humming": "humming-kernels", "cupy": "cupy-cuda13x"}
"""What pip calls them, where that differs."""


@dataclass(frozen=True, eq=False)
class Ready:
    """A peer of one problem: its launches, or why there are none."""

    peer: Peer
    launches: Sequence[Launch] = ()
    why: str = ""


def names() -> list[str]:
    """Of all peers."""
    return sorted({each.name for each in PEERS})


def refuse_missing(wanted: Sequence[str]) -> None:
    """Of peers that a call names. Raises ArgumentError for one that there is not, MissingPackageError for one
    that is not installed."""
    for name in wanted:
        if name not in names():
            raise ArgumentError(f"no peer {name!r}{near(name, names())}; there are {', '.join(names())}")
        why = next(each for each in PEERS if each.name == name).missing()
        if why:
            raise MissingPackageError(f"peer {name}: {why}: pip install {_PACKAGES.get(name, name)}")


def of(stem: str, format: str, dtype: str, device: str, wanted: Sequence[str] = ()) -> list[Peer]:
    """Those of a cell, of those that are wanted (none named: all)."""
    return [
        each
        for each in PEERS
        if (not wanted or each.name in wanted) and each.fits(stem, format, dtype, device)
    ]


def ready(peer: Peer, given: Given) -> Ready:
    """A peer prepared and its result compared: it is timed only where both went well."""
    why = peer.missing()
    if why:
        return Ready(peer, why=why)
    try:
        made = peer.make(given)
        off = made.off()
    except Exception as error:  # whatever another library raises: the others are still to be measured
        return Ready(peer, why=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    if not off <= peer.within:
        return Ready(peer, why=f"its result is off by {off:.1e}, more than {peer.within:.0e}")
    return Ready(peer, made.launches)
