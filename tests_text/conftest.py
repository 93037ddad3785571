"""Tiny models with random weights, saved to a folder as real ones are. Nothing here reaches the network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    Gemma3TextConfig,
    Gemma3TextModel,
    GemmaConfig,
    GemmaModel,
    PreTrainedTokenizerFast,
)

TEXTS = ['[{"kind":"charge","amps":1.5}]', "a", '[{"kind":"discharge","amps":2.25,"celsius":31.5}]', "4.2 4.2"]
SIZES = {
    "vocab_size": 130,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
}


def save_tokenizer(folder):
    """One token for each character below 128, as ids 2 and up."""
    words = {"<pad>": 0, "<eos>": 1, "<bos>": 2, **{chr(code): code + 3 for code in range(1, 127)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)


def save_model(folder, kind, seed):
    torch.manual_seed(seed)
    config, network = {"gemma": (GemmaConfig, GemmaModel), "gemma3": (Gemma3TextConfig, Gemma3TextModel)}[kind]
    made = network(config(**SIZES)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    made.save_pretrained(folder)
    save_tokenizer(folder)
    return made


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """saved(kind, seed) → (folder, the model that was saved there)."""
    made = {}

    def make(kind, seed=0):
        if (kind, seed) not in made:
            folder = tmp_path_factory.mktemp(f"{kind}{seed}")
            made[kind, seed] = folder, save_model(folder, kind, seed)
        return made[kind, seed]

    return make
