"""The prepack kernel on the CPU: every byte is what wootz.prepack makes, for known and unseen formats."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from wootz.formats.packed import prepack
from wootz.formats.sample import random_tensor

from gen.formats.axes import Format
from gen.formats.fragment import fragment
from gen.plan import cells as plan

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unseen")]
import functor_host  # noqa: E402
import host  # noqa: E402
import test_functor  # noqa: E402


@cache
def formats() -> dict[str, Format]:
    """Under names that C takes."""
    shipped = plan.load(HERE.parents[1] / "kernels.yaml").formats
    found = [*shipped.values(), *test_functor.unseen().values()]
    return {f"{fmt.name}_{i}": replace(fmt, name=f"{fmt.name}_{i}") for i, fmt in enumerate(found)}


GROUPS = 6
"""Parts that are compiled one by one, each in a test of its own, so that workers share the work."""


@pytest.mark.parametrize("group", range(GROUPS))
def test_byte_for_byte(group: int, tmp_path: Path) -> None:
    some = dict(list(formats().items())[group::GROUPS])
    library = host.Library(tmp_path, [host.kernel("prepack", fmt) for fmt in some.values()], "-O0")
    for name, fmt in some.items():
        check(library, name, fmt)


def check(library: host.Library, name: str, fmt: Format) -> None:
    d, columns = functor_host.descriptor(fmt), fragment(fmt).columns
    for shape in ((1, 1), (19, 300), (32, 512), (5, columns + 7)):
        q = random_tensor(d, shape, np.random.default_rng(3), specials=True)
        wanted = prepack(q).fields["units"]
        got = np.full_like(wanted, 0xA5)
        arrays = {f"w.{field}": host.guarded(a) for field, a in q.fields.items()}
        library.run(
            name, {**arrays, "y.units": got}, n=shape[0], k=shape[1], blocks=wanted.shape[0] * wanted.shape[1]
        )
        differ = np.argwhere(got != wanted)
        assert not len(differ), f"{name} {shape}: {len(differ)} bytes differ, at {differ[:3]}"
