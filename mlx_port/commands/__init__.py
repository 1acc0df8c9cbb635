"""The `mlx-port` command."""
