"""Damaged files end in a result with counted losses or in one TraceError sentence."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_aorta.errors import TraceError
from pytest_aorta.trace import reading
from pytest_aorta.trace.reading import Trace, read
from tests.trace import synthetic
from tests.trace.synthetic import COMMUNICATION, copy, kernel, launch, operator, step

SHARED = Path(__file__).parents[3] / "shared"
MUTATOR = SHARED / "prototypes" / "trace_mutate.py"
BASE = SHARED / "traces" / "dlrm_kineto" / "worker0_step_12.1694128201545.pt.trace.json.gz"

EVENTS = [
    step(1, 0, 500),
    *[launch(i, 1, i) for i in range(40)],
    *[operator(i, 1, f'aten::"mm" \\ {i}') for i in range(40)],
    *[kernel(10 * i + 0.125, 5, correlation=i) for i in range(40)],
    *[kernel(10 * i + 3, 4, COMMUNICATION, correlation=i) for i in range(40)],
    *[copy(10 * i, 1) for i in range(40)],
]
NUM_GPU_EVENTS = 120
DOCUMENT = synthetic.document(EVENTS, rank=2, world_size=4)
TEXT = json.dumps(DOCUMENT, indent=2).encode()
COMPACT = json.dumps(DOCUMENT, separators=(",", ":")).encode()
COMPRESSED = gzip.compress(TEXT)
EXAMPLES = 4 * settings().max_examples  # of the profile in use


def read_bytes(path: Path, content: bytes) -> Trace:
    path.write_bytes(content)
    return read(path)


def refusal(path: Path, content: bytes) -> str:
    with pytest.raises(TraceError) as caught:
        read_bytes(path, content)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no data"),
        (b"<html>404</html>", 'has no list of events ("traceEvents")'),
        (b'{"config": {"name": "x"}}', 'has no list of events ("traceEvents")'),
        (b'{"traceEvents": []}', "no event of it can be used"),
        (b"[1, 2, 3]", "no event of it can be used, 3 could not be read"),
        (b'[{"name": "x"}, {"name": "y"}]', "no event of it can be used"),
        (b"[" * 100_000, "no event of it can be used"),
        (gzip.compress(TEXT)[:12], "gzip data is cut off"),
        (b"\x1f\x8b\x08", "no gzip"),
    ],
    ids=["empty", "html", "json", "no events", "numbers", "no trace", "deep", "cut gzip", "gzip magic only"],
)
def test_what_holds_no_trace_is_refused_in_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    message = refusal(tmp_path / "t.json", content)
    assert message.startswith("t.json: ")
    assert said in message
    assert "\n" not in message


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"^t\.json: cannot be read \(No such file"):
        read(tmp_path / "t.json")


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        COMPACT,
        gzip.compress(TEXT),
        json.dumps(EVENTS).encode(),
        json.dumps(DOCUMENT, sort_keys=True).encode(),
        b"\xef\xbb\xbf" + TEXT.replace(b"\n", b"\r\n"),
        TEXT.replace(b'"stream": 7', b'"stream": 7, "blocks per SM": inf, "x": -NaN'),
        TEXT.replace(b"aten::", b"a\x01ten::"),
        TEXT.replace(b"aten::", b"a\xff\xfeten::"),
        TEXT.replace(b"aten::", rb"{\"cat\": \"kernel\", \"ts\": 1, \"dur\": 9}, {\"ph\": aten::"),
        TEXT.replace(
            b'"stream": 7',
            b'"stream": 7, "l": [{"name": "q", "ph": "X", "cat": "kernel", "ts": 1, "dur": 1}, {"name": "r"}]',
        ),
        json.dumps(
            {"traceEvents": EVENTS, "a": [{"id": 1}, {"id": 2}], "distributedInfo": {"rank": 2, "world_size": 4}}
        ).encode(),
        json.dumps({**DOCUMENT, "traceEvents": [{"args": e["args"], **e} for e in EVENTS]}).encode(),
    ],
    ids=[
        "pretty",
        "compact",
        "gzip",
        "list",
        "sorted",
        "bom crlf",
        "inf",
        "control",
        "utf8",
        "json in name",
        "events in args",
        "metadata behind",
        "args first",
    ],
)
def test_nothing_is_lost_where_all_can_be_read(tmp_path: Path, content: bytes) -> None:
    found = read_bytes(tmp_path / "t.json", content)
    assert (len(found.events.kind), len(found.launches.correlation), found.num_lost) == (NUM_GPU_EVENTS, 40, 0)
    assert found.num_events == len(EVENTS)
    assert found.steps == {1: (0, 500_000)}
    assert found.warnings == []
    if not content.startswith(b"["):
        assert (found.metadata.rank, found.metadata.world_size) == (2, 4)


@pytest.mark.parametrize("bound", [200, 1000, 5000])
@pytest.mark.parametrize("content", [TEXT, COMPACT], ids=["pretty", "compact"])
def test_blocks_of_any_size_give_the_same(tmp_path: Path, content: bytes, bound: int) -> None:
    content = content.replace(b'"stream":', b'"l": [{"name": "q"}, {"name": "r"}], "stream":')
    whole = read_bytes(tmp_path / "t.json", content)
    reader = reading.Reader(Trace("t.json"))
    for start in range(0, len(content), bound):
        reader.feed(content[start : start + bound])
    assert reader.finish() == whole


def changed(**fields: Any) -> bytes:
    events = [dict(event) for event in EVENTS]
    victim = next(event for event in events if event["cat"] == "kernel")
    victim.update(fields)
    return json.dumps(
        {**DOCUMENT, "traceEvents": [{k: v for k, v in e.items() if v != "absent"} for e in events]}
    ).encode()


@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("value", [None, "absent", -5, "soon", [], {}, True, 1e300])
def test_an_event_without_a_time_is_lost_and_counted(tmp_path: Path, field: str, value: Any) -> None:
    found = read_bytes(tmp_path / "t.json", changed(**{field: value}))
    assert (len(found.events.kind), found.num_lost) == (NUM_GPU_EVENTS - 1, 1)
    assert found.warnings == ["t.json: 1 events could not be read"]


@pytest.mark.parametrize(
    "fields", [{"ts": "0.125"}, {"dur": "5"}, {"pid": "GPU 0"}, {"args": None}, {"args": []}, {"name": 5}]
)
def test_fields_of_odd_types_cost_no_event(tmp_path: Path, fields: Any) -> None:
    found = read_bytes(tmp_path / "t.json", changed(**fields))
    assert (len(found.events.kind), found.num_lost) == (NUM_GPU_EVENTS, 0)
    assert found.events.start_ns == read_bytes(tmp_path / "u.json", TEXT).events.start_ns


def test_an_event_that_ends_after_all_time_is_lost_and_counted(tmp_path: Path) -> None:
    late = kernel(5_000_000_000_000_000, 5_000_000_000_000_000)
    content = json.dumps(synthetic.document([kernel(0, 1000, COMMUNICATION), late], rank=0, world_size=2)).encode()
    found = read_bytes(tmp_path / "t.json", content)
    assert (found.events.end_ns.tolist(), found.num_lost) == ([1_000_000], 1)


def test_infinity_a_fraction_and_an_unescaped_quote_in_one_block(tmp_path: Path) -> None:
    events = [json.dumps(kernel(start, 5.5)).encode() for start in (0.5, 20.5, 40.5)]
    events[1] = events[1].replace(b"5.5", b"Infinity")
    found = read_bytes(
        tmp_path / "t.json", b'{"traceEvents": [' + b",\n".join([*events[:2], b'{"name":"a"b"}', events[2]]) + b"]}"
    )
    assert (found.events.start_ns.tolist(), found.num_lost) == ([500, 40_500], 2)


def test_an_unescaped_quote_costs_one_event(tmp_path: Path) -> None:
    found = read_bytes(
        tmp_path / "t.json", TEXT.replace(b'"name": "gemm"', b'"name": "{"device": "cpu"}(12): gemm"', 1)
    )
    assert (len(found.events.kind), found.num_lost) == (NUM_GPU_EVENTS - 1, 1)


def test_the_share_that_was_lost_is_that_of_the_sort_that_lost_most(tmp_path: Path) -> None:
    calls = [launch(start, 1, start + 1) for start in range(99)]
    kernels = [kernel(start, -5 if start else 5) for start in range(1000)]
    operators = [operator(start, 1, "aten::mm") for start in range(100_000)]

    assert lost_ratio(tmp_path, [*calls, *kernels, *operators]) == 0.999
    assert lost_ratio(tmp_path, [*calls, launch(99, -1, 100), *kernels[:1], *operators]) == 0.01
    assert lost_ratio(tmp_path, [*calls, *kernels[:1], step(1, 0, 9), step(2, 9, -9)]) == 0.5


@pytest.mark.parametrize(
    ("damaged", "ratio"),
    [
        (b'{"ph": "X", "cat": "kernel", "name": "a"b", "ts": 1, "dur": 1}', 0.75),
        (b'{"ph": "X", "cat": "cuda_runtime", "name": "a"b", "ts": 1, "dur": 1}', 1.0),
        (b'{"ph": "X", "cat": "python_function", "name": "a"b", "ts": 1, "dur": 1}', 0.0),
        (b'{"name":"a"b"}', 0.3),
    ],
)
def test_an_event_that_cannot_be_read_counts_as_what_its_text_says(
    tmp_path: Path, damaged: bytes, ratio: float
) -> None:
    sound = [json.dumps(event).encode() for event in (kernel(0, 5), *(operator(start, 1, "a") for start in range(6)))]
    content = b'{"traceEvents": [' + b",\n".join([sound[0], *[damaged] * 3, *sound[1:]]) + b"]}"
    found = read_bytes(tmp_path / "t.json", content)
    assert (found.num_lost, found.lost_ratio) == (3, ratio)


def lost_ratio(folder: Path, events: list[synthetic.TraceEvent]) -> float:
    return read_bytes(folder / "t.json", json.dumps(synthetic.document(events)).encode()).lost_ratio


def test_a_cut_file_gives_what_came_before_the_cut(tmp_path: Path) -> None:
    found = read_bytes(tmp_path / "t.json", TEXT[: len(TEXT) * 7 // 10])
    assert 0 < len(found.events.kind) < NUM_GPU_EVENTS
    assert found.num_lost == 1
    assert found.warnings == [
        "t.json: the file is cut: its array of events never ends",
        "t.json: 1 events could not be read",
    ]
    assert found.metadata.rank == 2


@pytest.mark.parametrize("second", [TEXT, COMPACT, json.dumps(EVENTS).encode(), b"\0" * 700, b'{"a": 1}', b"]"])
@pytest.mark.parametrize("first", [TEXT, COMPACT, json.dumps(EVENTS).encode()])
@pytest.mark.parametrize("between", [b"", b"\n \n"])
@pytest.mark.parametrize("bound", [300, 1 << 20])
def test_what_follows_the_trace_is_told(first: bytes, second: bytes, between: bytes, bound: int) -> None:
    content = first + between + second + b"\n"
    reader = reading.Reader(Trace("t.json"))
    for start in range(0, len(content), bound):
        reader.feed(content[start : start + bound])
    found = reader.finish()
    assert (len(found.events.kind), found.num_lost) == (NUM_GPU_EVENTS, 0)
    assert found.warnings == [f"t.json: {len(second)} bytes follow the trace, and are not read"]


@pytest.mark.parametrize("num_bytes", [1000, reading.MAX_EVENT_BYTES + (4 << 20)])
def test_a_second_gzip_member_with_anything_in_it_is_told(tmp_path: Path, num_bytes: int) -> None:
    found = read_bytes(tmp_path / "t.json.gz", COMPRESSED + gzip.compress(b"x" * num_bytes))
    assert (len(found.events.kind), found.num_lost) == (NUM_GPU_EVENTS, 0)
    assert found.warnings == [f"t.json.gz: {num_bytes} bytes follow the trace, and are not read"]


FAKE = '{"traceEvents": [' + json.dumps(kernel(0, 7)) + "]}"


@pytest.mark.parametrize("bound", [50, 1 << 20])
@pytest.mark.parametrize(
    "head",
    [
        f'"meta": {FAKE}',
        f'"meta": [1, [{FAKE}, {FAKE}], {{"x": [{FAKE}]}}]',
        f'"note": "a }} ]] \\" {{", "meta": {FAKE}',
        f'"meta": {FAKE}, "note": "}}}}]"',
    ],
)
def test_only_a_list_of_events_of_the_document_itself_counts(head: str, bound: int) -> None:
    content = TEXT.replace(b"{", b"{" + head.encode() + b",", 1)
    reader = reading.Reader(Trace("t.json"))
    for start in range(0, len(content), bound):
        reader.feed(content[start : start + bound])
    found = reader.finish()
    assert (len(found.events.kind), found.num_lost, found.warnings) == (NUM_GPU_EVENTS, 0, [])
    assert found.metadata.rank == 2


def test_a_list_of_events_inside_of_an_event_is_not_the_traces(tmp_path: Path) -> None:
    event = kernel(0, 7)
    event["args"]["traceEvents"] = [{"ph": "X"}]
    found = read_bytes(tmp_path / "t.json", json.dumps([event, kernel(7, 1)]).encode())
    assert found.events.end_ns.tolist() == [7_000, 8_000]


@pytest.mark.parametrize("damage", [b'"a": "b"c", ', b'"a": {"b": [}, ', b"[{[ ", b'" '])
def test_a_damaged_head_hides_no_events(tmp_path: Path, damage: bytes) -> None:
    found = read_bytes(tmp_path / "t.json", TEXT.replace(b"{", b"{" + damage, 1))
    assert (len(found.events.kind), found.num_lost) == (NUM_GPU_EVENTS, 0)
    assert found.warnings == ["t.json: the metadata before the events is damaged"]


def test_names_that_are_no_text_can_still_be_written(tmp_path: Path) -> None:
    content = TEXT.replace(b'"name": "gemm"', b'"name": "ge\\ud800\xffmm"').replace(b'"ts": 0.125', b'"ts": 0.125"', 1)
    found = read_bytes(tmp_path / "t.json", content)
    assert found.num_lost == 1
    assert "ge??mm" in found.names


def test_damaged_metadata_still_gives_the_rank(tmp_path: Path) -> None:
    content = json.dumps({"traceEvents": EVENTS, "distributedInfo": {"rank": 2}, "z": 1}).encode()[:-5]
    found = read_bytes(tmp_path / "t.json", content)
    assert (found.metadata.rank, found.num_lost) == (2, 0)
    assert found.warnings == ["t.json: the metadata after the events is damaged"]


def test_an_event_without_end_is_dropped_and_reading_goes_on(tmp_path: Path) -> None:
    endless = {"ph": "X", "cat": "cpu_op", "name": "x" * (reading.MAX_EVENT_BYTES + (2 << 20))}
    found = read_bytes(tmp_path / "t.json", json.dumps({"traceEvents": [*EVENTS, endless, *EVENTS]}).encode())
    assert len(found.events.kind) == 2 * NUM_GPU_EVENTS
    assert found.num_lost >= 1


def result_or_refusal(path: Path, content: bytes) -> Trace | str:
    try:
        return read_bytes(path, content)
    except TraceError as error:
        return str(error)


def consistent(found: Trace) -> bool:
    same_length = len({len(getattr(found.events, name)) for name in type(found.events).__slots__}) == 1
    told = any("could not be read" in warning for warning in found.warnings)
    return same_length and bool(found.num_lost) == told


ODD_NUMBERS = ["Infinity", "-inf", "NaN", "1e999", "-5", "null", "9007199254740993", "1712195495505583.25", '"0.5"']


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(EVENTS) - 1), st.sampled_from(["ts", "dur"]), st.sampled_from(ODD_NUMBERS))),
    st.lists(st.tuples(st.integers(0, len(EVENTS)), st.sampled_from(['{"name":"a"b"}', '{"ph":}', "{", "\x00", "7"]))),
)
def test_odd_numbers_beside_damage_end_in_a_result(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[tuple[int, str, str]], damages: list[tuple[int, str]]
) -> None:
    events = [dict(event) for event in EVENTS]
    for place, field, _ in numbers:
        events[place][field] = f"<{place} {field}>"
    pieces = [json.dumps(event) for event in events]
    for place, field, number in numbers:
        pieces[place] = pieces[place].replace(f'"<{place} {field}>"', number)
    for place, damage in damages:
        pieces.insert(place, damage)
    content = ('{"traceEvents": [' + ",\n".join(pieces) + "]}").encode()
    found = read_bytes(tmp_path_factory.getbasetemp() / "odd.json", content)
    assert consistent(found)
    assert len(found.events.kind) <= NUM_GPU_EVENTS


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from([TEXT, COMPACT, COMPRESSED]), st.data())
def test_cuts_and_flips_end_in_a_result_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)), label="cut")])
    for _ in range(data.draw(st.integers(0, 4), label="flips")):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    found = result_or_refusal(tmp_path_factory.getbasetemp() / "damaged.json", bytes(damaged))
    if isinstance(found, str):
        assert found.startswith("damaged.json: ")
        assert "\n" not in found
        return
    assert consistent(found)
    if len(damaged) < len(content) and content != COMPRESSED:
        assert found.warnings


@pytest.fixture(scope="module")
def mutants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (MUTATOR.is_file() and BASE.is_file()):
        pytest.skip("the trace damager and its base (../shared) are not here")
    folder = tmp_path_factory.mktemp("mutants")
    for name in ("mut", BASE.parent.name):
        (folder / name).mkdir()
    (folder / BASE.parent.name / BASE.stem).write_bytes(gzip.decompress(BASE.read_bytes()))
    subprocess.run([sys.executable, MUTATOR], cwd=folder, check=True)
    return folder / "mut"


# name of the mutant: GPU events and lost events; 261 and 0 where nothing is lost
LOSSY = {
    "01_trunc70pct.json": None,
    "03_trunc70pct.json.gz": None,
    "02_trunc_no_close.json": (261, 0),
    "05_unescaped_quote_in_name.json": (261, 1),
    "07_missing_dur.json": (237, 24),
    "15_no_gpu.json": (0, 0),
    "21_null_fields.json": (258, 3),
    "22_neg_dur.json": (260, 1),
}
REFUSED = {"16_empty.json", "17_zero_bytes.json", "18_html.json"}


def test_every_known_damage_is_counted(mutants: Path) -> None:
    for path in sorted(mutants.iterdir()):
        if path.name in REFUSED:
            with pytest.raises(TraceError, match=path.name):
                read(path)
            continue
        found = read(path)
        counted = (len(found.events.kind), found.num_lost)
        expected = LOSSY.get(path.name, (261, 0))
        assert expected is None or counted == expected, path.name
        assert found.warnings or counted == (261, 0) or path.name == "15_no_gpu.json", path.name
