"""Threads and the system. That programs exit well is tested with `mlx-port serve`."""

from __future__ import annotations

import os
import threading

import pytest

from tts_core.serving.engine import wait_for_system


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc")
def test_a_thread_that_has_been_waited_for_is_gone() -> None:
    for _ in range(50):
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        wait_for_system(thread)
        assert not os.path.exists(f"/proc/self/task/{thread.native_id}")
