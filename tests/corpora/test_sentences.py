import pytest

from zentence.corpora.sentences import DocumentStats, split_documents, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["He left.", "She stayed!", "Why?", "Nobody knows."],
        ["Mr. Smith paid $3.50 to J. R. Jones Inc. on Jan. 5.", "He left."],
        ['"Why?" she asked.', '"I don\'t know."', "Nobody did."],
        ["He shouted “Stop!”", "Then he ran (fast).", "(Really.)", "Yes."],
        ["It rained... but then it stopped...", "The sun came out.", "Wait…", "What?!", "Yes."],
        ["The U.S. economy grew.", "He lives in the U.S.", "The end."],
        ["At 5 p.m. the train left.", "It came at 6 p.m.", "It was late."],
        ["See Fig. 3, No. 5 and e.g. this.", "He said no.", "Then he left."],
        ["Visit www.example.com.", "It costs 1.5 million.", "2 is even."],
        ["i like it .", "it is n't good !", "why ?", "mr. x went ."],
        ['" i like it . "', "it was good .", '" no . "'],
        ["It ended in 1999.", "All was well."],
        ["No end"],
        [],
    ],
)
def test_splits_between_sentences_only(sentences: list[str]) -> None:
    assert split_sentences("  " + " ".join(sentences).replace(" ", "\t ")) == sentences


def test_documents_are_filtered_by_length_and_counted() -> None:
    stats = DocumentStats()
    lines = ["One two three. Yes. Four words are here.\n", "\n", "Another document without an end"]
    assert list(split_documents(lines, max_words=4, min_words=2, stats=stats)) == [
        "One two three.",
        "Four words are here.",
    ]
    assert (stats.documents, stats.sentences, stats.kept, stats.words) == (2, 4, 2, 7)
    assert stats.share_kept == 0.5
    assert DocumentStats().share_kept == 0.0
    assert list(split_documents(["One two."], max_words=2)) == ["One two."]
