"""The page of limits: docs/limits.md, from the rules of torch_ref.limits and from runs under `observe`."""
