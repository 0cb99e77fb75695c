from __future__ import annotations

import json

import pytest

from pytest_aorta.config.redact import (
    REDACTED,
    is_secret,
    is_secret_name,
    redact,
    scrub,
    scrub_file,
    scrub_line,
    scrub_value,
    secrets_in,
)
from pytest_aorta.run.secrecy import clean_line, cleaned


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "HF_TOKEN",
        "hf-token",
        "Secret",
        "AWS_CREDENTIALS",
        "X_AUTHORIZATION_Y",
        "API_KEY",
        "passwd",
        "API_TOKEN.x",
        "a.KEY_KEY",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["hf_token_file", "TOKEN_PATH", "TOKENIZERS_PARALLELISM", "priv_key_file", "KEYBOARD", "MONKEY", "secretary"],
)
def test_names_that_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_secret_only_in_environments_clusters_and_registries() -> None:
    assert is_secret(("container", "env", "HF_TOKEN"))
    assert is_secret(("container", "env", "ANY", "secret"))
    assert is_secret(("cluster", "password"))
    assert is_secret(("container", "runtime", "args", "registry", "password"))
    assert not is_secret(("training_overrides", "model.token"))
    assert not is_secret(("cluster", "node_dict", "secret-1", "vpc_ip"))


def test_a_document_loses_its_secrets_and_nothing_else() -> None:
    document = {"env": {"A": 1, "X_KEY": 42, "Y": {"secret": "s3"}, "Z": None}, "note": ["has T0pSecret in it"]}
    assert redact(document, ("T0pSecret",)) == {
        "env": {"A": 1, "X_KEY": REDACTED, "Y": {"secret": REDACTED}, "Z": None},
        "note": [f"has {REDACTED} in it"],
    }
    assert secrets_in(document) == ("42", "s3")


def test_every_secret_of_four_characters_is_cut_out_of_free_text() -> None:
    assert scrub("got test2 and longpassword", ("test2", "longpassword")) == f"got {REDACTED} and {REDACTED}"
    assert scrub("the token is hunter, not hunters", ("hunter",)) == f"the token is {REDACTED}, not {REDACTED}s"
    assert scrub("test_run", ("test", "")) == f"{REDACTED}_run"


@pytest.mark.parametrize("secret", ["x1", "abc", "7", "a.c", "+"])
def test_a_short_secret_is_cut_out_as_a_whole_word(secret: str) -> None:
    text = f"{secret} ({secret}) ={secret}; a{secret}b {secret}_ 12{secret}34"
    rest = f"a{secret}b {secret}_ 12{secret}34"
    assert scrub(text, (secret,)) == f"{REDACTED} ({REDACTED}) ={REDACTED}; {rest}"


def test_what_names_something_in_a_document_keeps_ordinary_words() -> None:
    secrets = ("test", "data", "12", "hunter2")
    for text in ("test_run_benchmark", "/my data/test 12", "test", "12"):
        assert scrub_value(text, secrets) == text
    assert scrub_value("is-hunter2", secrets) == f"is-{REDACTED}"
    assert scrub_value("/bin/sh: test 12", secrets) == f"/bin/sh: {REDACTED} {REDACTED}"


def test_what_belongs_to_other_programs_is_free_text() -> None:
    document = {"multi_node": {"extra_env": {"PLAIN": "hunter"}}, "accelerator": "hunter"}
    assert redact(document, ("hunter",)) == {
        "multi_node": {"extra_env": {"PLAIN": REDACTED}},
        "accelerator": "hunter",
    }


def test_a_line_of_json_stays_one() -> None:
    line = '{"aorta": "step", "step": 12, "note": "is step 12", "n": [98765, true, 1.5]}\n'
    assert scrub_line(line, ("absent",)) == line
    scrubbed = scrub_line(line, ("step", "12", "98765", "True"))
    assert scrubbed.endswith("}\n")
    assert json.loads(scrubbed) == {
        "aorta": "step",
        "step": 12,
        "note": f"is {REDACTED} {REDACTED}",
        "n": [REDACTED, True, 1.5],
    }
    assert scrub_line('{"API_TOKEN": "hunter"}', ("hunter",)) == f'{{"API_TOKEN": "{REDACTED}"}}'
    assert scrub_line('{"hunter-2": 1, "step": 2}', ("hunter-2", "step")) == f'{{"{REDACTED}": 1, "step": 2}}'
    assert "hf_Secret" not in scrub_line(
        '{"aorta": "hf_Secret", "n": {"aorta": {"aorta": "hf_Secret"}}}', ("hf_Secret",)
    )
    for broken in ('{"a": hunter}', "hunter", "{" * 50_000 + "hunter"):
        assert "hunter" not in scrub_line(broken, ("hunter",))


def test_a_secret_inside_a_longer_one_leaves_no_rest() -> None:
    assert scrub("abc-123-xyz", ("abc-", "abc-123-xyz")) == REDACTED


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("https://bot:pw@github.com/x/y", "https://bot:<redacted>@github.com/x/y"),
        ("see postgres://u:p@ss:w@h:5432/d, then", "see postgres://u:<redacted>@h:5432/d, then"),
        ("redis://:pw@h http://:a@b", "redis://:<redacted>@h http://:<redacted>@b"),
        ('{"u": "http://h:80", "m": "x@y"}', '{"u": "http://h:80", "m": "x@y"}'),
        ("https://ghp_a1B2@h/x git+HTTP://t:@h", "https://<redacted>@h/x git+HTTP://<redacted>:@h"),
        ("https://ghp_a1B2:x-oauth-basic@h", "https://<redacted>:<redacted>@h"),
        ("https://h/a@b https://h?a@b https://h#a@b", "https://h/a@b https://h?a@b https://h#a@b"),
        ("http://h:80,u@b ssh://git@h/x http://h:80/a:b@c", "http://h:80,u@b ssh://git@h/x http://h:80/a:b@c"),
    ],
)
def test_the_password_in_a_url_is_secret_everywhere(text: str, rest: str) -> None:
    assert scrub(text, ()) == rest
    assert scrub_value(rest, ()) == rest
    assert clean_line(text, ()) == rest
    assert cleaned([text], ()) == [rest]


def test_the_password_of_a_configured_url_is_known() -> None:
    document = {"env": {"DB": "postgres://u:pw-1@h/d", "X_KEY": "k"}, "clone_url": "https://a:pw-2@h"}
    assert secrets_in(document) == ("pw-1", "k", "pw-2")
    assert redact(document) == {
        "env": {"DB": "postgres://u:<redacted>@h/d", "X_KEY": REDACTED},
        "clone_url": "https://a:<redacted>@h",
    }


@pytest.mark.parametrize("password", ["Tr0ub4dor,3", "it's,me", "p@ss:'w,"])
def test_a_password_with_a_comma_or_a_quote_is_known_whole(password: str) -> None:
    document = {"aorta_clone_url": f"https://bot:{password}@git.example/x.git"}
    shown = {"aorta_clone_url": "https://bot:<redacted>@git.example/x.git"}
    assert secrets_in(document) == (password,)
    assert redact(document) == shown
    assert json.loads(scrub_file(json.dumps(document), ())) == shown
    assert scrub_file(f"aorta_clone_url: {document['aorta_clone_url']}", secrets_in(document)) == (
        f"aorta_clone_url: {shown['aorta_clone_url']}"
    )


def test_a_token_in_the_place_of_the_user_is_known_and_an_ordinary_user_only_hidden() -> None:
    document = {"clone_url": "https://ghp_abcdefghijklmnop@github.com/org/repo", "rccl": "https://git@h/x"}
    assert secrets_in(document) == ("ghp_abcdefghijklmnop",)
    assert redact(document) == {"clone_url": "https://<redacted>@github.com/org/repo", "rccl": "https://<redacted>@h/x"}
    assert scrub("git clone git@h:x ssh://git@h/x", secrets_in(document)) == "git clone git@h:x ssh://git@h/x"


def test_a_configuration_file_keeps_its_form_whatever_number_is_secret() -> None:
    text = '{"timeout_seconds": 60, "note": "is 60"}'
    assert json.loads(scrub_file(text, ("60",))) == {"timeout_seconds": 60, "note": "is <redacted>"}
    assert scrub_file(text, ("61",)) == text
    assert scrub_file("note: is 60\n", ("60",)) == "note: is <redacted>\n"
