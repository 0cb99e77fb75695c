from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.config import yaml_text
from pytest_aorta.config.document import MAX_DEPTH, Table, parse_json, path_text, read
from pytest_aorta.errors import ConfigError
from tests.config.config_site import Site


def test_repeated_keys_are_remembered_at_every_level() -> None:
    table = parse_json('{"a": {"b": 1, "b": 2}, "c": 1, "c": 2, "c": 3}')
    assert table.repeated == ("c",)
    assert table["a"].repeated == ("b",)


def test_a_path_reads_as_users_write_it() -> None:
    assert path_text(("container", "runtime", "args", "volumes", 0)) == "container.runtime.args.volumes[0]"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "empty"),
        ("{", "line 1 column 2"),
        ('{"a": 1,\n "b" 2}', "line 2 column 6"),
        ("[1]", "seen a list, expected an object"),
        ("null", "seen null"),
        ("3", "seen a number"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested deeper than 64"),
        ("[" * 200_000, "nested deeper than 64"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_text_that_is_no_document(site: Site, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.json") as caught:
        read(site.write("x.json", text), "x.json")
    assert sentence in str(caught.value)


def test_files_that_cannot_be_read(site: Site) -> None:
    os.mkfifo(site.folder / "pipe.json")
    (site.folder / "latin.json").write_bytes(b'{"a": "\xe4"}')
    for name, sentence in {
        "absent.json": "no such file",
        ".": "not a regular file",
        "pipe.json": "not a regular file",
        "latin.json": "not UTF-8",
        "n" * 5000: "cannot be read",
        "a\0b": "",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read(site.folder / name, "the file")
        assert sentence in str(caught.value)


def test_a_byte_order_mark_is_no_fault(site: Site) -> None:
    assert read(site.write("x.json", "\ufeff{}"), "x").document == {}


def test_comments_of_the_top_level_are_left_out_even_repeated(site: Site) -> None:
    source = read(site.write("x.json", '{"_c": 1, "_c": "<changeme>", "a": {"_b": 1}}'), "x")
    assert source.document == {"a": {"_b": 1}}
    assert source.document.repeated == ()


def test_yaml_scalars_follow_the_rule_for_overrides(site: Site) -> None:
    text = "a: 2e-4\nb: no\nc: 1:30\nd: '5'\ne:\nf: [1, x, ~]\n1: {y: true}\ng: |\n  12\n"
    document = read(site.write("x.yaml", text), "x").document
    assert document == {
        "a": 2e-4,
        "b": "no",
        "c": "1:30",
        "d": "5",
        "e": None,
        "f": [1, "x", "~"],
        "1": {"y": True},
        "g": "12\n",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: &x 1\nb: *x", "alias"),
        ("a: !!python/object/apply:os.getcwd []", "a tag"),
        ("a: !!str 5", "a tag"),
        ("a: 1\n---\nb: 2", "2 documents"),
        ("? [1]\n: 2", "a key that is no text"),
        ("a: [1", "line"),
        ("a: b: c", "line 1"),
        ("a: \x01", "not YAML"),
        ("- 1", "seen a list"),
        ("", "seen null"),
    ],
)
def test_yaml_that_is_refused(site: Site, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(site.write("x.yml", text), "x.yml")
    assert sentence in str(caught.value)


def test_yaml_repeats_are_remembered(site: Site) -> None:
    assert read(site.write("x.yaml", "a: 1\na: 2\n"), "x").document.repeated == ("a",)


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,? \n\t0.~<"))
def test_any_yaml_text_is_a_value_or_one_sentence(text: str) -> None:
    with contextlib.suppress(ValueError):
        yaml_text.parse(text, Table.of_pairs, MAX_DEPTH)


def test_the_home_folder_is_only_looked_up_for_a_leading_tilde(site: Site) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        site.load({"cluster": "~nobody-of-this-name/x.json"})
    assert Path.home() == site.minimal(output_dir="~/x").output_dir.parent
