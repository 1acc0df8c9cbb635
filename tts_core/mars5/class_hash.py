"""Numbers of the hash that gives every class of a cell a random number of its own: shared by both sides.

A cell has two numbers from the host. On the device the first and the class, then the second, go through two
rounds of multiplying and xor-shifting 32-bit integers, which no backend rounds. Multipliers: those of
"lowbias32" in Chris Wellons's hash-prospector (public domain), and golden ratios for the steps between
classes and between second numbers. Shifts keep the sign, unlike there, which no framework's signed integers
can else do in one operation: the result has 31 bits and none of sign.
"""

NOISE_BITS = 23  # of a host's number, see tts_core/noise.py
HASH_BITS = 31


def signed(bits: int) -> int:
    """The 32-bit integer of these bits."""
    return bits - 2**32 if bits >= 2**31 else bits


CLASS_STEP = signed(0x9E3779B1)
CELL_STEP = signed(0x85EBCA77)
ROUNDS = ((16, signed(0x21F0AAAD)), (15, signed(0xD35A2D97)))  # shift, multiplier
LAST_SHIFT = 15
