from __future__ import annotations

import pytest

from pytest_aorta.config.redact import REDACTED, is_secret, is_secret_name, redact, scrub, secrets_in


@pytest.mark.parametrize(
    "name", ["password", "HF_TOKEN", "hf-token", "Secret", "AWS_CREDENTIALS", "X_AUTHORIZATION_Y", "API_KEY", "passwd"]
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


def test_ordinary_words_are_not_cut_out_of_texts() -> None:
    assert scrub("test_run of 12", ("test", "12", "")) == "test_run of 12"
    assert scrub("got test2 and longpassword", ("test2", "longpassword")) == f"got {REDACTED} and {REDACTED}"


def test_a_secret_inside_a_longer_one_leaves_no_rest() -> None:
    assert scrub("abc-123-xyz", ("abc-", "abc-123-xyz")) == REDACTED
