import json

from hypothesis import given
from hypothesis import strategies as st

from zentence.corpora.ledger import Ledger

counts = st.integers(0, 10**12)
ledgers = st.builds(Ledger, *[counts] * 9)


@given(ledgers, ledgers)
def test_ledgers_add_and_survive_json(first: Ledger, second: Ledger) -> None:
    both = first + second
    assert both.predicted == first.predicted + second.predicted
    assert Ledger.from_dict(json.loads(json.dumps(both.to_dict()))) == both


def test_predicted_counts_eos_and_never_bos() -> None:
    ledger = Ledger(sentences=3, words=10)
    assert (ledger.eos, ledger.predicted) == (3, 13)


def test_describes_itself_in_one_paragraph() -> None:
    ledger = Ledger(1, 3200, 3200, 9000, 32)
    assert ledger.describe() == "1 sentence, 3,200 words (+ 1 <eos>), 9,000 bytes, 32 unknown (1.0%)."
    text = Ledger(2, 8, 11, 30, 0, 1, 1, 2, 9).describe()
    assert "11 sub-word tokens" in text
    assert text.endswith("Length limit: 1 sentence truncated, 2 dropped, 9 words lost. 1 blank line skipped.")
    assert "0 unknown (0.0%)" in Ledger().describe()
