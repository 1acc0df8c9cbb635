import numpy as np

from tts_core.nn.positions import rope_table, stream_positions


def test_a_table_may_begin_at_any_position():
    """Far out, too: the angles are the whole table's, bit by bit."""
    whole = rope_table(5000, 6, 10000.0)
    for start, length in ((0, 5), (1, 1), (4990, 10)):
        part = rope_table(length, 6, 10000.0, start=start)
        for rows, table in zip(part, whole, strict=True):
            np.testing.assert_array_equal(rows, table[start : start + length])


def test_places_of_streams():
    """Every step sees itself and the window before it; keys before a stream's first step are padding."""
    cos, sin, mask = stream_positions((7, 2), 3, 4, window=4, head_dim=6, theta=100.0)
    for row, start in enumerate((7, 2)):
        for rows, table in zip((cos, sin), rope_table(3, 6, 100.0, start=start), strict=True):
            np.testing.assert_array_equal(rows[row, 0], table)
        for step in range(3):
            seen = {start - 4 + key for key in np.flatnonzero(mask[row, 0, step])}
            assert seen == {place for place in range(start + step - 3, start + step + 1) if place >= 0}
    for start in (7, 2):
        alike = stream_positions((start, start), 3, 4, window=4, head_dim=6, theta=100.0)
        for one, row in zip((cos, sin, mask), alike, strict=True):
            np.testing.assert_array_equal(one[(7, 2).index(start), 0], row)
