"""Bulk synthesis: rows in, sound files and a manifest out, resumable at any moment."""
