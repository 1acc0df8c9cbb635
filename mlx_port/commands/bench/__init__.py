"""`mlx-port bench`: time a model on this machine, or a server under load."""
