"""Report of the limits for docs/measured/limits.md: the rules, and workloads run under `observe`."""
