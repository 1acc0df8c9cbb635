"""The pace of English read aloud. Apart, because the flags of `generate` need it before anything heavy."""

CHARACTERS_PER_SECOND = 15  # roughly
