"""Published weights to converted folders: readers, maps, the plan that joins them, and the streaming writer."""
