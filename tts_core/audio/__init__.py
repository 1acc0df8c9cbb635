"""Sound files and operations on samples, in NumPy."""
