"""Conversion of published weights to folders for MLX: readers, maps, rules and the writer."""
