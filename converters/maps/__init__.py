"""Weight maps: one file per network family, data only."""
