"""`mlx-port bench --server`: load on any server with OpenAI's speech route."""
