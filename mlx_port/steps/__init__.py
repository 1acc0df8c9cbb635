"""Steps that are built once: joined weights, compiled chains, kernels."""
