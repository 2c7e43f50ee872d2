"""Which sentences of a training file are held out."""

import hashlib
from typing import NamedTuple


class Shares(NamedTuple):
    """Shares of the training files' sentences that are held out; both 0: none."""

    valid: float = 0.0
    test: float = 0.0

    def side(self, text: str) -> str:
        """Return the side ("train", "valid" or "test") of a whitespace-normalised sentence.

        It depends on the sentence alone, whatever its case: duplicates fall on one side, and a file that grows keeps
        its assignments.
        """
        if not self.valid:
            return "train"
        digest = hashlib.blake2b(text.lower().encode(), digest_size=8).digest()
        point = int.from_bytes(digest, "big") / 2**64
        if point < self.valid:
            return "valid"
        return "test" if point < self.valid + self.test else "train"
