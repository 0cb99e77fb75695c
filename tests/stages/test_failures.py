"""Who failed first: never the rank that only lost its peer."""

from __future__ import annotations

import pytest

from pytest_aorta.stages.failures import Failures, first_causes

PEER_LOST = "[default{r}]:[rank{r}]: RuntimeError: [gloo/pair.cc:1] Connection closed by peer [127.0.0.1]:24748"


def block(*failures: tuple[int, int]) -> list[str]:
    lines = [
        "E1129 17:31:30.120000 77 torch/x/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 5) of binary: python",
        "Failures:",
    ]
    for rank, code in failures:
        lines += [f"  rank      : {rank} (local_rank: {rank % 8})", f"  exitcode  : {code} (pid: 6)"]
    return lines


def cause(*lines: str, code: int | None = 1) -> str:
    failures = Failures()
    for line in lines:
        failures.line(line)
    return first_causes({"a": failures}, {"a": code})["a"].said


@pytest.mark.parametrize("order", [[(0, 1), (1, 13)], [(1, 13), (0, 1)]])
def test_rank_that_lost_its_peer_is_not_named(order: list[tuple[int, int]]) -> None:
    assert cause(PEER_LOST.format(r=0), *block(*order)) == "a: rank 1 exited 13 (1 more rank ended after it)"


def test_rank_with_an_error_of_its_own_is_named_with_it() -> None:
    said = cause("[default1]:[rank1]: ValueError: no such layer", PEER_LOST.format(r=0), *block((0, 1), (1, 1)))

    assert said == "a: rank 1 exited 1: ValueError: no such layer (1 more rank ended after it)"


def test_a_script_that_refuses_its_arguments_is_quoted() -> None:
    usage = ("[default0]:usage: my.py [-h]", "[default0]:my.py: error: unrecognized arguments: --bogus")

    assert cause(*usage, *block((0, 2), (1, -15))) == (
        "a: rank 0 exited 2: my.py: error: unrecognized arguments: --bogus (1 more rank ended after it)"
    )


def test_numbers_of_thousands_of_digits_are_none() -> None:
    many = "9" * 5000
    lines = [f"  rank      : {many} (local_rank: 0)", *block((0, 13)), f"  exitcode  : {many} (pid: 6)"]

    assert cause(*lines) == "a: rank 0 exited 13"


STOPPED = "[default{0}]:2026-12-01 01:50:17 rank {0} WARNING {1} after step 9"


@pytest.mark.parametrize("code", [-15, 143])
def test_of_ranks_that_all_end_by_sigterm_the_one_that_got_it_first_is_named(code: int) -> None:
    ends = block(*((rank, code) for rank in range(4)))
    notice = ends[0].replace("exitcode: 1) local_rank: 0", f"exitcode: {code}) local_rank: 3")
    how = "was ended by SIGTERM" if code < 0 else "exited 143"

    assert cause(notice, *ends[1:]) == f"a: rank 3 {how} (3 more ranks ended after it)"


def test_a_rank_that_says_that_it_got_a_signal_is_named_whoever_left_first() -> None:
    said = [STOPPED.format(rank, "ended because rank 2 got SIGTERM,") for rank in (0, 1, 3)]
    lines = [*said, STOPPED.format(2, "stopped by SIGTERM"), *block(*((rank, 143) for rank in range(4)))]

    assert cause(*lines) == "a: rank 2 exited 143: stopped by SIGTERM after step 9 (3 more ranks ended after it)"


def test_a_rank_that_torchrun_noticed_first_is_named_though_a_peer_lost_it_at_once() -> None:
    ends = block((0, 1), (1, -15))
    notice = ends[0].replace("exitcode: 1) local_rank: 0", "exitcode: -15) local_rank: 1")

    assert cause(PEER_LOST.format(r=0), notice, *ends[1:]) == (
        "a: rank 1 was ended by SIGTERM (1 more rank ended after it)"
    )


def test_an_interrupted_rank_is_named_and_those_that_stopped_with_it_are_not() -> None:
    lines = [STOPPED.format(0, "ended because rank 1 got SIGINT,"), STOPPED.format(1, "stopped by SIGINT")]

    assert cause(*lines, *block((0, 130), (1, 130))) == (
        "a: rank 1 exited 130: stopped by SIGINT after step 9 (1 more rank ended after it)"
    )


def test_what_the_trainer_says_of_its_launcher_is_no_refusal() -> None:
    gone = "[default0]:train.py: the launcher of this rank is gone; leaving"

    assert "refuses" not in cause(gone, *block((0, 143), (1, -15)))


def test_all_ranks_that_were_ended_alike_are_told() -> None:
    assert cause(*block((0, -9), (2, -9))) == "a: rank 0 was ended by SIGKILL (likewise rank 2)"
    assert cause(*block(*((rank, 13) for rank in range(6)))) == "a: rank 0 exited 13 (likewise rank 1, 2, 3 and 2 more)"


def test_of_two_hosts_the_one_whose_rank_got_the_signal_is_named() -> None:
    followers, own = Failures(), Failures()
    for line in (STOPPED.format(0, "ended because rank 1 got SIGTERM,"), *block((0, 143))):
        followers.line(line)
    for line in (STOPPED.format(0, "stopped by SIGTERM"), *block((1, 143))):
        own.line(line.replace("rank     : 1 (local_rank: 1)", "rank     : 1 (local_rank: 0)"))

    causes = first_causes({"a": followers, "b": own}, {"a": 1, "b": 1})

    assert list(causes) == ["b"]
    assert causes["b"].said.startswith("b: rank 1 exited 143")


def test_rank_that_torchrun_ended_is_not_named() -> None:
    said = cause("[default3]:MemoryError: out of memory", *block((3, 1), (0, -15), (1, -15)))

    assert said == "a: rank 3 exited 1: MemoryError: out of memory (2 more ranks ended after it)"


def test_killed_rank_is_named_by_its_signal() -> None:
    assert cause(PEER_LOST.format(r=0), *block((0, 1), (1, -9))).startswith("a: rank 1 was ended by SIGKILL")


def test_aborted_rank_is_named_with_what_its_library_said() -> None:
    abort = ("[default1]:terminate called after throwing an instance of 'c10::Error'", "[default1]:  what():  no GPU")
    stacks = '[default1]:  File "train.py", line 3 in main'

    said = cause(*abort, stacks, *block((1, -6)))

    assert said == (
        "a: rank 1 was ended by SIGABRT: terminate called after throwing an instance of 'c10::Error' what():  no GPU"
    )
    assert cause("[default1]:terminate called without an active exception", *block((1, -6))).endswith(
        "SIGABRT: terminate called without an active exception"
    )


def test_all_ranks_that_say_the_same_are_said_once() -> None:
    sentence = "train.py: config: training.max_step: unknown knob; did you mean max_steps?"
    said = cause(f"[default0]:{sentence}", f"[default1]:{sentence}", *block((0, 2), (1, 2)))

    assert said == f"a: the trainer refuses its configuration: {sentence}"


def test_nobody_is_named_when_everybody_lost_a_peer() -> None:
    said = cause(PEER_LOST.format(r=0), PEER_LOST.format(r=1), *block((0, 1), (1, 1)))

    assert said.startswith("a: rank 0, 1 lost a peer or waited for it in vain (RuntimeError: ")
    assert "which rank went first was not seen" in said


def test_rank_that_waited_in_vain_points_to_those_that_had_not_failed() -> None:
    words = "[default1]:[rank1]: RuntimeError: [gloo/wait.cc:1] Timed out waiting 4000ms for recv operation to complete"
    said = cause(words, *block((1, 1), (0, -15)))

    assert said.startswith("a: rank 1 lost a peer or waited for it in vain (RuntimeError: ")
    assert said.endswith("rank 0 had not failed until then: look there")


def test_rank_that_torchrun_ended_is_no_cause_whatever_it_said() -> None:
    said = cause("[default1]:RuntimeError: training step failed", *block((0, -9), (1, -15)))

    assert said == "a: rank 0 was ended by SIGKILL (1 more rank ended after it)"


def test_own_connection_error_of_a_rank_is_its_own() -> None:
    said = cause("[default1]:ConnectionRefusedError: [Errno 111] Connection refused", *block((0, -15), (1, 1)))

    assert said == (
        "a: rank 1 exited 1: ConnectionRefusedError: [Errno 111] Connection refused (1 more rank ended after it)"
    )


def test_workload_without_torchrun_is_told_by_its_exit_code_and_last_error() -> None:
    assert cause("Traceback", "KeyError: 'x'", code=1) == "a: the workload exited 1: KeyError: 'x'"
    assert cause(code=13) == "a: the workload exited 13"
    assert cause(code=-9) == "a: the workload was ended by SIGKILL"


def test_notice_comes_before_the_end() -> None:
    failures = Failures()
    failures.line(block((0, 1))[0])

    assert failures.noticed == (0, 1)


@pytest.mark.parametrize(
    "line",
    [
        "attempt 1 failed (exitcode: 1) local_rank: 0, retrying",
        "[default0]:E1129 17:31:30.120000 77 torch/x/api.py:1002] failed (exitcode: 1) local_rank: 0",
    ],
)
def test_text_that_only_looks_like_a_notice_is_none(line: str) -> None:
    failures = Failures()
    failures.line(line)

    assert failures.noticed is None


def test_host_whose_ranks_only_lost_their_peers_is_not_named() -> None:
    first, second = Failures(), Failures()
    for line in (PEER_LOST.format(r=0), *block((0, 1))):
        first.line(line)
    for line in block((1, 13)):
        second.line(line)

    found = first_causes({"a": first, "b": second}, {"a": 1, "b": 1})

    assert {host: cause.said for host, cause in found.items()} == {
        "b": "b: rank 1 exited 13 (1 more host ended after it)"
    }


@pytest.mark.parametrize(
    ("words", "code"),
    [("WARNING store: Connection reset by peer, retrying", -11), ("RuntimeError: Connection reset by peer", 3)],
)
def test_rank_that_crashed_or_chose_its_exit_code_failed_by_itself(words: str, code: int) -> None:
    said = cause(f"[default1]:{words}", *block((0, -15), (1, code)))

    assert said.startswith("a: rank 1 ")
    assert "had not failed until then" not in said


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: [gloo] Application timeout caused pair closure",
        "RuntimeError: [gloo/x.cc] Read timeout [10.0.0.1]:4711",
        "DistBackendError: NCCL communicator was aborted on rank 0.",
        "DistNetworkError: The client socket has failed to connect to [n1]:29500",
    ],
)
def test_followers_of_every_kind_are_not_named_beside_the_guilty(words: str) -> None:
    said = cause(f"[default0]:{words}", "[default1]:ValueError: mine", *block((0, 1), (1, 1)))

    assert said == "a: rank 1 exited 1: ValueError: mine (1 more rank ended after it)"
