"""What all commands share: how one starts, runs and ends, and the wording of usage errors."""
