"""One way to speak: a speech is a generator, and a session runs speeches."""
