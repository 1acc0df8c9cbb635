import numpy as np

from tts_core.nn.positions import rope_table


def test_a_table_may_begin_at_any_position():
    """Far out, too: the angles are the whole table's, bit by bit."""
    whole = rope_table(5000, 6, 10000.0)
    for start, length in ((0, 5), (1, 1), (4990, 10)):
        part = rope_table(length, 6, 10000.0, start=start)
        for rows, table in zip(part, whole, strict=True):
            np.testing.assert_array_equal(rows, table[start : start + length])
