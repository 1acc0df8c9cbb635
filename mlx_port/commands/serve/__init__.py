"""`mlx-port serve`: an HTTP server of the OpenAI speech API. `command` has the flags, `run` starts it."""
