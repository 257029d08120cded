"""Positions in change streams."""

import pytest
from bson import Timestamp

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.mongodb.log.stream_pipeline import build_start_option
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition, is_mark, normalize_token, time_of
from tests.support.sources.mongodb.mongodb_recordings import scenarios

MARK = "826B029D52000000052B0429296E1404"
EVENT = "826B029D41000000242B042C0100296E5A1004CABCBC2736DB498B87831E250831D274463C6F7065726174696F6E54797065003C696E73657274"


def test_a_token_of_an_event_is_behind_it_and_a_mark_is_before_its_moment() -> None:
    event, mark = MongoPosition.behind_token(EVENT), MongoPosition.behind_token(MARK)
    assert event == MongoPosition(ClusterTime(1795333441, 36), EVENT)
    assert mark == MongoPosition(ClusterTime(1795333458, 4))
    assert (is_mark(EVENT), is_mark(MARK)) == (False, True)


def test_a_mark_at_the_beginning_of_a_second_is_behind_the_second_before() -> None:
    mark = MongoPosition.behind_token(MARK.replace("6B029D5200000005", "6B029D5200000000"))
    assert mark == MongoPosition(ClusterTime(1795333457, 2**32 - 1))
    assert MongoPosition.from_json(mark.to_json()) == mark
    event = MongoPosition.behind_token(EVENT.replace("6B029D4100000024", "6B029D5200000000"))
    assert event.has_reached(mark)
    assert not mark.has_reached(event)


def test_behind_the_last_part_of_an_event_is_behind_the_event() -> None:
    """By the recorded tokens: parts have that of the event, with their number before its end."""
    seen = 0
    for step in scenarios()["large"]["steps"]:
        for event in step.get("nextBatch", ()):
            token = event["_id"]["_data"]
            whole = MongoPosition.from_json({"resume_token": token}).token
            assert whole is not None
            if "splitEvent" in event:
                assert (token.startswith(whole[:-2]), len(token) - len(whole)) in ((True, 2), (True, 4))
                seen += 1
            else:
                assert whole == token
    assert seen > 3
    for scenario in scenarios().values():
        for step in scenario["steps"]:
            for event in step.get("nextBatch", ()):
                if "splitEvent" not in event and "_id" in event and "_data" in event["_id"]:
                    position = MongoPosition.behind_token(event["_id"]["_data"])
                    assert position.whole_event_position is position


def test_positions_are_in_the_order_of_the_events_between_them() -> None:
    time = ClusterTime(1795333441, 36)
    before, event, whole = MongoPosition(ClusterTime(1795333441, 35)), MongoPosition(time, EVENT), MongoPosition(time)
    ordered = [before, event, whole, MongoPosition.behind_token(MARK)]
    for i, one in enumerate(ordered):
        assert [one.has_reached(other) for other in ordered] == [i >= j for j in range(len(ordered))]


def test_the_recorded_tokens_are_in_the_order_of_their_events() -> None:
    """Over every stream of every recording; a mark of a moment is not behind the events of that moment."""
    seen = 0
    for scenario in scenarios().values():
        last: dict[str, str] = {}
        for step in scenario["steps"]:
            stream = step.get("open") or step.get("getMore")
            if "open" in step:
                last.pop(stream, None)
            for event in step.get("nextBatch", step.get("firstBatch", ())):
                if "splitEvent" in event or "clusterTime" not in event or "_id" not in event:
                    continue
                token = normalize_token(event["_id"]["_data"])
                stamp = event["clusterTime"]["$timestamp"]
                assert time_of(token) == ClusterTime(stamp["t"], stamp["i"])
                position = MongoPosition.behind_token(token)
                assert not is_mark(token)
                assert MongoPosition(position.time).has_reached(position)
                assert not position.has_reached(MongoPosition(position.time))
                if stream in last:
                    assert token > last[stream], (scenario["name"], stream)
                last[stream], seen = token, seen + 1
    assert seen > 1500


@pytest.mark.parametrize(
    "position",
    [
        MongoPosition(ClusterTime(5, 1)),
        MongoPosition(time_of(EVENT), EVENT),
        MongoPosition(time_of(EVENT), EVENT, "82"),
    ],
)
def test_a_position_survives_its_json(position: MongoPosition) -> None:
    again = MongoPosition.from_json(position.to_json())
    assert (again, again.type_bits) == (position, position.type_bits)
    assert str(position)


def test_offsets_of_debezium_are_read() -> None:
    document = {"sec": 1795333441, "ord": 36, "resume_token": '{"_data": "' + EVENT + '"}', "transaction_id": None}
    assert MongoPosition.from_json(document) == MongoPosition(ClusterTime(1795333441, 36), EVENT)
    assert MongoPosition.from_json({"resume_token": EVENT.lower()}).token == EVENT
    assert build_start_option(MongoPosition.from_json(document)) == {"startAfter": {"_data": EVENT}}, "behind the event"
    moment = MongoPosition.from_json({"sec": 1795333441, "ord": 36})
    assert build_start_option(moment) == {"startAtOperationTime": Timestamp(1795333441, 36)}


@pytest.mark.parametrize("document", [{}, {"sec": "x", "ord": 1}, {"resume_token": "zz"}, {"resume_token": "8200"}])
def test_what_is_no_position_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="is not a position"):
        MongoPosition.from_json(document)
