"""What MLX runs on: its BLAS, loaded first, the arithmetic of its products, and its memory."""
