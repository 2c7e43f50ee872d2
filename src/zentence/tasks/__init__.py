"""What a trained space is good for without further training: classify sentences, rank answers, write answers."""
