"""Papers' tables again: their rows trained and measured here, beside what the papers print."""
