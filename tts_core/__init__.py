"""What is true of the models whatever framework runs them."""
