"""`mlx-port batch`: bulk synthesis on this machine's devices, on Ray, or under mlx.launch."""
