"""A port for Home Assistant: speech in the Wyoming protocol. Needs the extra `wyoming`."""
