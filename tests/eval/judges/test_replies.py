from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.eval.judges.replies import Reply, ReplyStore, Turn, reply_key


@settings(max_examples=10)
@given(st.dictionaries(st.text(min_size=1), st.builds(Reply, st.text(), st.text(), st.integers(0), st.integers(0))))
def test_replies_come_back_as_they_were(replies: dict[str, Reply]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with ReplyStore(Path(folder)) as store:
            for key, reply in replies.items():
                store.put(key, reply)
        again = ReplyStore(Path(folder))
        assert {key: again.get(key) for key in replies} == replies and not again.damaged


def test_blank_replies_are_not_kept(tmp_path: Path) -> None:
    with ReplyStore(tmp_path) as store:
        for key, text, stop in (("a", " \n", "stop"), ("b", "", "content_filter"), ("c", "", "max_tokens")):
            store.put(key, Reply(text, stop))
    with ReplyStore(tmp_path) as store:
        assert store.get("a") is None and store.get("b") and store.get("c") and not store.damaged
        store.put("a", Reply("yes"))
    assert ReplyStore(tmp_path).get("a") == Reply("yes")


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    with ReplyStore(tmp_path) as one, ReplyStore(tmp_path) as other:
        one.put("a", Reply("first"))
        other.put("a", Reply("second"))
        other.put("b", Reply("b"))
    again = ReplyStore(tmp_path)
    assert len(again) == 2 and again.get("a") == Reply("first")  # the earlier one stays the reply


def test_a_key_holds_all_that_changes_a_reply() -> None:
    turn = Turn("user", "what?", (b"1", b"2"))
    others = [[Turn("user", "what?", images)] for images in ((b"12",), (b"2", b"1"))]
    keys = {reply_key("judge", one) for one in ([turn], [turn, Turn("assistant", "eh")], *others)}
    keys |= {reply_key("judge", [turn], None, draw) for draw in (1, 2)}
    assert len(keys | {reply_key("other", [turn]), reply_key("judge", [turn], {"type": "object"})}) == 8
    # A change of this hash would judge everything again.
    assert reply_key("judge", [turn]) == reply_key("judge", [turn], draw=0) == "a0b92eff7dffad4da005dc43a5e36ee4"
