"""Generation that is guided: by a label, by what was said before, by a style."""
