"""Speech of text that arrives while it is spoken: WS /v1/audio/speech/stream."""
