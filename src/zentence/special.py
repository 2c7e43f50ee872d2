"""The special words and their ids, apart from `types` so that reading text does not import torch."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL_WORDS = ("<pad>", "<bos>", "<eos>", "<unk>")
