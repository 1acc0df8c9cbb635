"""Published weights to converted folders: readers, maps, the plan that joins them, the streaming writer."""
