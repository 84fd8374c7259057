"""Tests that draw at random draw the same each time, on every machine."""

from __future__ import annotations

try:
    from hypothesis import settings
    from hypothesis.internal.conjecture import providers
except ImportError:  # those that draw say themselves that they need it
    pass
else:
    settings.register_profile("same", derandomize=True, database=None, deadline=None)
    settings.load_profile("same")
    # Hypothesis draws numbers that stand in the source of loaded modules, its seed notwithstanding: what a
    # test draws would follow from which tests ran before it, and from every edit.
    if hasattr(providers, "_get_local_constants"):
        _NONE = providers.Constants()
        providers._get_local_constants = lambda: _NONE
