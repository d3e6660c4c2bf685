from __future__ import annotations

import importlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.prefixes import near_prefixes, prefix_of_model
from tests.petals_shim import install

PREFIXES = {
    "meta-llama/Llama-2-70b-hf": "Llama-2-70b-hf",
    "meta-llama/Llama-2-70b-chat-hf": "Llama-2-70b-chat-hf",
    "meta-llama/Meta-Llama-3.1-405B-Instruct": "Meta-Llama-3-1-405B-Instruct-hf",
    "huggyllama/llama-65b": "llama-65b-hf",
    "petals-team/StableBeluga2": "StableBeluga2-hf",
    "timdettmers/guanaco-65b": "guanaco-65b-hf",
    "StableBeluga2": "StableBeluga2-hf",
    "tiiuae/falcon-180B": "falcon-180B",
    "tiiuae/falcon-40b-instruct": "falcon-40b-instruct",
    "bigscience/bloom": "bigscience/bloom-petals",
    "bigscience/bloomz": "bigscience/bloomz-petals",
    "bigscience/bloom-petals": "bigscience/bloom-petals",
    "bigscience/bloom-7b1": "bigscience/bloom-7b1-petals",
    "artek0chumak/bloom.v1": "artek0chumak/bloom-v1-petals",
    "mistralai/Mixtral-8x22B-Instruct-v0.1": "mistralai/Mixtral-8x22B-Instruct-v0-1",
}
PUBLIC = ("Llama-2-70b-chat-hf", "Llama-2-70b-hf", "StableBeluga2-hf", "bigscience/bloom-petals", "falcon-180B")


@pytest.mark.parametrize(("repository", "prefix"), PREFIXES.items())
def test_prefixes(repository, prefix):
    assert prefix_of_model(repository) == prefix


@pytest.mark.parametrize(
    ("module", "name", "repository"),
    [
        (family, f"Distributed{family.title()}Config", repository)
        for repository in PREFIXES
        for family in ["bloom" if "bloom" in repository else "falcon" if "falcon" in repository else "llama"]
        if "Mixtral" not in repository  # petals 2.2.0.post1 does not know it
    ],
)
def test_they_are_what_the_real_petals_makes(monkeypatch, module, name, repository):
    install()
    config = getattr(importlib.import_module(f"petals.models.{module}.config"), name)
    compatible = importlib.import_module("petals.utils.version").get_compatible_model_repo
    made = []

    class Config:
        pad_token_id = 0

    def from_pretrained(cls, *args, dht_prefix=None, **kwargs):
        made.append(dht_prefix)
        return Config()

    base = importlib.import_module("transformers").PretrainedConfig
    monkeypatch.setattr(base, "from_pretrained", classmethod(from_pretrained))
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    config.from_pretrained(compatible(repository))
    assert made == [prefix_of_model(repository)]


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("meta-llama/Llama-2-70b-hf", "Llama-2-70b-hf"),
        ("Llama-2-70b", "Llama-2-70b-hf"),
        ("llama-2-70b-HF", "Llama-2-70b-hf"),
        ("meta-llama/llama-2-70b", "Llama-2-70b-hf"),
        ("petals-team/StableBeluga2", "StableBeluga2-hf"),
        ("stable-beluga2", "StableBeluga2-hf"),
        ("bigscience/bloom", "bigscience/bloom-petals"),
        ("bloom", "bigscience/bloom-petals"),
        ("falcon-180b", "falcon-180B"),
        ("tiiuae/falcon-180B", "falcon-180B"),
        ("falcon-180B-hf", "falcon-180B"),
    ],
)
def test_near_prefixes(asked, near):
    assert near_prefixes(asked, PUBLIC)[0] == near


def test_nothing_is_near():
    assert near_prefixes("mpt-7b", PUBLIC) == ()
    assert near_prefixes("", PUBLIC) == ()
    assert near_prefixes("x", ()) == ()
    assert near_prefixes("falcon-180B", PUBLIC) == ()  # itself


def test_names_that_strangers_announce_do_not_take_time():
    assert near_prefixes("x" * 10**6, ["x" * 10**6] * 3) == ()
    many = [f"{index:0200d}" for index in range(20_000)]
    assert len(near_prefixes("0" * 200, many)) == 2


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=8))
def test_any_names(asked, available):
    found = near_prefixes(asked, available)
    assert len(found) <= 3
    assert set(found) <= set(available) - {asked}
    assert "." not in prefix_of_model(asked)
