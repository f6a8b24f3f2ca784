"""The page of models: `python -m tests.runtimes.llm.model_page > docs/llm-models.md`."""

from runtimes.llm.model.encoders.families import ENCODERS
from runtimes.llm.model.families import FAMILIES
from runtimes.llm.weights.gguf_config import ARCHITECTURES
from runtimes.llm.weights.gguf_encoder import ENCODER_ARCHITECTURES

# By config.json's model_type; several of one group are separated by spaces.
DECODERS = {
    "llama": "Llama 1 to 3.3, TinyLlama, SmolLM2, Yi, Falcon 3, DeepSeek-R1-Distill-Llama",
    "llama4_text llama4": "Llama 4 Scout and Maverick (text)",
    "mllama_text_model mllama": "Llama 3.2 Vision (text)",
    "idefics3 smolvlm": "Idefics 3, SmolVLM and SmolVLM 2",
    "mistral": "Mistral 7B, Nemo, Ministral 8B, Mistral Small 24B, Magistral",
    "mistral3 ministral3": "Mistral Small 3.1 and 3.2, Ministral 3 (text)",
    "mistral4": "Mistral Small 4 (text)",
    "mixtral": "Mixtral 8x7B, 8x22B",
    "qwen2": "Qwen 2 and 2.5, QwQ, DeepSeek-R1-Distill-Qwen",
    "qwen2_vl qwen2_5_vl": "Qwen 2-VL and 2.5-VL (text)",
    "qwen2_moe": "Qwen 1.5 and 2 MoE",
    "qwen3": "Qwen 3, Qwen 3 Embedding",
    "qwen3_vl": "Qwen 3-VL (text)",
    "qwen3_vl_moe_text qwen3_vl_moe": "Qwen 3-VL MoE (text)",
    "qwen3_moe": "Qwen 3 30B-A3B and 235B-A22B, Qwen 3 Coder",
    "qwen3_next": "Qwen 3-Next",
    "qwen3_5_text qwen3_5": "Qwen 3.5 (text)",
    "qwen3_5_moe_text qwen3_5_moe": "Qwen 3.5 MoE (text)",
    "gemma": "Gemma 1",
    "gemma2": "Gemma 2",
    "gemma3_text gemma3": "Gemma 3 (text)",
    "gemma3n_text gemma3n": "Gemma 3n (text)",
    "gemma4_text gemma4": "Gemma 4 (text)",
    "phi": "Phi-2",
    "phi3": "Phi-3, Phi-3.5-mini, Phi-4, Phi-4-mini",
    "phi4_multimodal phi4mm": "Phi-4-multimodal (text)",
    "phimoe": "Phi-3.5-MoE",
    "gpt_oss": "gpt-oss 20B and 120B",
    "granite": "Granite 3 dense",
    "granitemoe granitemoeshared": "Granite 3 MoE",
    "granitemoehybrid": "Granite 4, with and without experts",
    "falcon_h1": "Falcon-H1",
    "nemotron-nas": "Llama-Nemotron Super and Ultra",
    "nemotron_h": "Nemotron-H, Nemotron Nano 2 and 3",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "olmoe": "OLMoE",
    "smollm3": "SmolLM3",
    "glm glm4": "GLM-4 9B, GLM-4-0414",
    "glm4_moe": "GLM-4.5, 4.6, 4.7",
    "glm4_moe_lite": "GLM-4.7-Flash",
    "deepseek_v2": "DeepSeek V2, V2-Lite, Coder V2",
    "deepseek_v3 kimi_k2": "DeepSeek V3, V3.1, R1, Kimi K2",
    "deepseek_v32": "DeepSeek V3.2",
    "glm_moe_dsa": "GLM-5",
    "dots1": "dots.llm1",
    "minimax_m2": "MiniMax-M2",
    "cohere cohere2": "Command R, R7B, A",
    "starcoder2": "StarCoder 2",
    "internlm3": "InternLM 3",
    "seed_oss": "Seed-OSS 36B",
    "hunyuan_v1_dense": "Hunyuan dense",
    "ernie4_5": "ERNIE 4.5 0.3B",
    "ernie4_5_moe": "ERNIE 4.5 MoE",
    "exaone4": "EXAONE 4",
    "apertus": "Apertus",
    "arcee": "Arcee AFM",
    "gpt2": "GPT-2, DialoGPT",
    "lfm2": "LFM2",
}
_ENCODERS = {
    "bert": "bge, e5, MiniLM, mxbai, arctic-embed",
    "roberta xlm-roberta camembert": "bge-m3, multilingual-e5",
    "distilbert": "msmarco-distilbert, multi-qa-distilbert",
    "mpnet": "all-mpnet-base-v2",
    "modernbert": "gte-modernbert, ModernBERT-embed",
    "nomic_bert": "nomic-embed v1 and v1.5",
    "new gte": "gte-multilingual, gte-en v1.5, arctic-embed-m-v2",
    "embeddinggemma": "EmbeddingGemma",
    "t5": "sentence-t5, gtr-t5",
    "electra albert": "ELECTRA, ALBERT",
    "deberta-v2": "DeBERTa v2 and v3",
    "jina-v3 jina_embeddings_v3": "Jina v3",
}
_AS_BERT = ("roberta", "xlm-roberta", "camembert", "distilbert")
_MODEL_TYPES = {
    "embeddinggemma": "gemma3_text", "jina-v3 jina_embeddings_v3": "xlm-roberta jina_embeddings_v3",
}  # fmt: skip
"""config.json's model_type of a row that has a name of its own."""
_CLASSIFIERS = {
    "bert": ("ms-marco-MiniLM, TinyBERT", "pooler, `classifier`"),
    "xlm-roberta roberta camembert": ("bge-reranker, bge-reranker-v2-m3, mmarco-mMiniLM", "`classifier` of two layers"),
    "modernbert": ("gte-reranker-modernbert, Ettin rerankers", "`head`, `classifier`; the first state or the mean"),
    "new gte nomic_bert": ("gte-multilingual-reranker", "pooler, `classifier`"),
    "distilbert": ("distilbert-sst-2 and the like", "`pre_classifier`, `classifier`"),
    "deberta-v2": ("mxbai-rerank v1, nli-deberta-v3, Prompt Guard", "pooler, `classifier`"),
    "electra": ("ms-marco-electra", "`classifier` of two layers"),
    "albert": ("classifiers of ALBERT", "pooler, `classifier`"),
    "mpnet": ("classifiers of MPNet", "`classifier` of two layers"),
}
_MISSING = {
    "deepseek_v4": ("DeepSeek V4", "attention to compressed keys"),
    "deberta": ("DeBERTa v1", "their own kinds of attention"),
}  # fmt: skip
_HEAD = """# Models that the LLM engine serves

Name a model as the pool's runtime; [llm-engine.md](llm-engine.md) has its options:

```yaml
version: 1
pools:
  - name: experts
    runtime: {kind: llm, model: "hf:Qwen/Qwen3-30B-A3B", kv_cache: 4GiB, weights: int4}
models:
  - {name: chat, routes: [{to: experts}]}
tenants:
  - {name: acme, models: [chat]}
```

Families are compared with transformers, on a small random model of their layout. In
float32, log-probabilities differ by less than 0.0002. The GGUF column lists architectures that are read too. With
latent attention the KV cache holds one latent for each position. Torch computes these models, not the native step; they
take no LoRA adapters. Where it is sparse, a token attends to the positions that the model's own indexer selects.

| models | `model_type` | GGUF | special |
|---|---|---|---|
"""
_STATES = """
## Recurrent layers

Such a model holds a state for each running answer, of one size at every length. States take up to half of `kv_cache`,
and if there are fewer than `max_num_seqs`, requests wait for them.

- **Prefix cache.** A cached beginning is used where a copy of the state was made. Copies are made at the last full
  page of a prompt, and where a prompt parts from those before it. So a shared system prompt is computed twice, and used
  from the third request on. Copies take the slots that no answer needs, and the least recently used one goes first.
- `speculation` is refused at load, because a state cannot go back.
- Torch computes these models, not the C++ step.
"""
_EMBED = """
## Encoders

They embed texts, and answer no chats. They load from safetensors, from PyTorch's files, and from GGUF files of the
architectures below. In float32, vectors differ from those of transformers by less than 0.0002.

| models | `model_type` | GGUF |
|---|---|---|
"""
_RANK = """
## Rerankers and classifiers

A model that was saved as `…ForSequenceClassification` answers
[`/v1/rerank`, `/score` and `/classify`](llm-engine.md#rerankers-and-classifiers), and nothing else. Its class may be of
a type below, or of any decoder above: there the head is `score`, over the last token's state. Qwen 3 Reranker ranks
with `task: rerank`. In float32, scores differ from sentence-transformers' CrossEncoder by less than 0.0001.

| models | `model_type` | head |
|---|---|---|
"""
_REFUSE = """
## Refused

A model outside of these tables is refused at load. The error names its type and the types that load. Serve it with
`kind: vllm`, or behind llama.cpp's server with `kind: openai`.

| models | `model_type` | missing |
|---|---|---|
"""
_RECURRENT = "[recurrent layers](#recurrent-layers)"
_TORCH = "computed by torch, not by the C++ step"
_SPECIAL = {
    "mistral3 ministral3": "pictures are not read; queries that grow with their position",
    "llama4_text llama4": f"experts; attention to pieces of a text; {_TORCH}; pictures are not read",
    "mllama_text_model mllama": "pictures are not read",
    "mistral4": "latent attention, experts; queries that grow with their position; pictures are not read",
    "phi4_multimodal phi4mm": "pictures and sounds are not read",
    "idefics3 smolvlm": "[pictures](llm-engine.md#pictures), no videos",
    "mixtral": "experts; as `llama` in GGUF",
    "qwen2_moe": "experts, one of them for all tokens",
    "qwen2_vl qwen2_5_vl": "pictures are not read",
    "qwen3_vl": "pictures are not read",
    "qwen3_vl_moe_text qwen3_vl_moe": "experts; pictures are not read",
    "gemma3_text gemma3": "pictures are not read",
    "gemma4_text gemma4": f"some with experts; {_TORCH}; pictures and sounds are not read; no LoRA",
    "gemma3n_text gemma3n": f"{_TORCH}; pictures and sounds are not read; no LoRA",
    "qwen3_moe": "experts",
    "gpt_oss": "experts in MXFP4 or whole, sinks",
    "granitemoe granitemoeshared": "experts",
    "olmoe": "experts",
    "phimoe": "experts",
    "glm4_moe": "experts in groups, one for all tokens",
    "glm4_moe_lite": "latent attention, experts",
    "deepseek_v2": "latent attention, experts in groups",
    "deepseek_v3 kimi_k2": "latent attention, experts in groups",
    "deepseek_v32": "sparse latent attention, experts in groups",
    "glm_moe_dsa": "sparse latent attention, experts in groups",
    "dots1": "experts in groups, one for all tokens",
    "minimax_m2": "experts",
    "ernie4_5_moe": "experts, some of them for all tokens",
    "olmo3": "as `olmo2` in GGUF",
    "smollm3": "some layers without positions",
    "cohere cohere2": "some layers without positions",
    "exaone4": "some layers without positions",
    "lfm2": f"short convolutions; {_TORCH}",
    "granitemoehybrid": _RECURRENT,
    "qwen3_next": f"{_RECURRENT}, experts; no LoRA",
    "qwen3_5_text qwen3_5": f"{_RECURRENT}; pictures are not read; no LoRA",
    "qwen3_5_moe_text qwen3_5_moe": f"{_RECURRENT}, experts; pictures are not read; no LoRA",
    "falcon_h1": _RECURRENT,
    "nemotron-nas": f"layers of different sizes; {_TORCH}; no LoRA",
    "nemotron_h": f"{_RECURRENT}, some with experts",
}


def page() -> str:
    files: dict[str, list[str]] = {}
    for architecture, row in ARCHITECTURES.items():
        files.setdefault(row.family, []).append(architecture)
    files["mixtral"], files["olmo2"] = ["llama"], files["olmo3"]
    files["deepseek_v3"] = files["glm4_moe_lite"] = files["deepseek_v2"]
    lines = [
        f"| {title} | {_coded(types)} | {_coded(' '.join(_archs(types, files)))} | {_SPECIAL.get(types, '')} |"
        for types, title in DECODERS.items()
    ]
    encoders = [
        f"| {title} | {_coded(_MODEL_TYPES.get(types, types))} | {_coded(_encoder_archs(types))} |"
        for types, title in _ENCODERS.items()
    ]
    ranking = [f"| {title} | {_coded(types)} | {head} |" for types, (title, head) in _CLASSIFIERS.items()]
    refused = [f"| {title} | {_coded(types)} | {part} |" for types, (title, part) in _MISSING.items()]
    parts = (
        _HEAD,
        *lines,
        "",
        _STATES.strip("\n"),
        "",
        _EMBED.strip("\n"),
        *encoders,
        "",
        _RANK.strip("\n"),
        *ranking,
        "",
        _REFUSE.strip("\n"),
        *refused,
    )
    return "\n".join(parts).replace("|---|---|---|---|\n\n", "|---|---|---|---|\n") + "\n"


def listed() -> set[str]:
    """Every model_type on the page that loads."""
    return {name for types in (*DECODERS, *_ENCODERS) for name in types.split()}


def classifiers() -> set[str]:
    """Every type of encoders on the page that ranks."""
    return {name for types in _CLASSIFIERS for name in types.split()}


def missing() -> set[str]:
    return {name for types in _MISSING for name in types.split()}


def loadable() -> set[str]:
    return {*FAMILIES, *ENCODERS}


def _archs(types: str, files: dict[str, list[str]]) -> list[str]:
    seen = [name for kind in types.split() for name in files.get(kind, [])]
    pictures = {"qwen2_vl": ["qwen2vl"], "qwen3_vl": ["qwen3vl"], "qwen3_vl_moe_text": ["qwen3vlmoe"]}
    own = {name for names in pictures.values() for name in names}
    return pictures.get(types.split()[0]) or [name for name in seen if name not in own]


def _encoder_archs(types: str) -> str:
    """RoBERTa and DistilBERT are `bert` in these files."""
    kinds = {"bert" if kind in _AS_BERT else kind for kind in types.split()}
    return " ".join(name for name, row in ENCODER_ARCHITECTURES.items() if row.family in kinds)


def _coded(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())


if __name__ == "__main__":
    print(page(), end="")
