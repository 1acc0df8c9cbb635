"""Errors of MLX on Metal, in its words, and the beginnings of our messages for them."""

from __future__ import annotations

FAILED = "[METAL] Command buffer execution failed: "
MEMORY = FAILED + "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)."
INTERACTIVITY = (
    FAILED + "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)."
)
TIMEOUT = FAILED + "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)."
STREAM = "There is no Stream(gpu, 1) in current thread."
LARGER = (
    "[metal::malloc] Attempting to allocate 17179869184 bytes which is greater than the maximum allowed "
    "buffer size of 14302248960 bytes."
)
MESSAGES = {
    MEMORY: "memory: not enough",
    INTERACTIVITY: "gpu: macOS ended a call",
    TIMEOUT: "gpu: macOS ended a call",
    STREAM: "thread: streams of MLX",
    LARGER: "memory: an array is larger",
}
SHORTAGES = (MEMORY, INTERACTIVITY, TIMEOUT, LARGER)
LATE = (MEMORY, INTERACTIVITY, TIMEOUT)
