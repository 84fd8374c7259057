"""Tests that draw at random draw the same each time, on every machine; those that interrupt are heard."""

from __future__ import annotations

import signal
import threading

# A shell starts what it runs in the background with SIGINT ignored, and processes inherit that.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
