"""`mlx-port bench`: time a model on this machine."""
