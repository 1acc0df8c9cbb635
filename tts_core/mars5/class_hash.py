"""Constants of the hash that derives a random number for every class of a cell; shared by both sides.

The host draws two numbers per cell. The device mixes the first number and the class, then the second number,
in two rounds of multiplying and xor-shifting 32-bit integers, which are exact on every backend. Multipliers:
"lowbias32" of Chris Wellons's hash-prospector (public domain), and golden ratios for the steps between
classes and between second numbers. Unlike there, shifts are arithmetic: frameworks have no logical shift of
signed integers in one operation. The result has 31 bits and no sign bit.
"""

NOISE_BITS = 23  # of a number from the host, see tts_core/nn/noise.py
HASH_BITS = 31


def signed(bits: int) -> int:
    """Interpret 32 bits as a signed integer."""
    return bits - 2**32 if bits >= 2**31 else bits


CLASS_STEP = signed(0x9E3779B1)
CELL_STEP = signed(0x85EBCA77)
ROUNDS = ((16, signed(0x21F0AAAD)), (15, signed(0xD35A2D97)))  # shift, multiplier
LAST_SHIFT = 15
