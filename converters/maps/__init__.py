"""One file per published layout: data only."""
