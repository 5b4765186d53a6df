"""What model types have in common that their config.json does not say: biases, norms, tied embeddings, kinds of MLP."""

from __future__ import annotations

# config.json's default where tie_word_embeddings is left out: Transformers' base class says true, these model classes say false
UNTIED_BY_DEFAULT = frozenset(
    {
        "llama", "llama4", "llama4_text", "mistral", "mixtral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next",
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4", "glm4_moe", "glm_moe_dsa", "gpt_oss", "phi3", "olmo2", "olmo3", "mllama_text_model",
        "internlm2", "minimax_m2", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text", "nemotron_h", "ernie4_5_moe",
        "qwen3_5_text", "qwen3_5_moe_text", "falcon_h1", "bamba", "glm4_moe_lite", "exaone4",
    }
)  # fmt: skip
QKV_BIAS_TYPES = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl_text"})
HEAD_NORM_TYPES = frozenset(
    {
        "qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text", "gemma3", "gemma3_text",
        "gemma4", "gemma4_text", "exaone4", "hunyuan_v1_moe", "apertus",
    }
)  # fmt: skip
FULL_NORM_TYPES = frozenset({"olmo2", "olmo3", "olmoe", "minimax_m2"})
FOUR_NORM_TYPES = frozenset({"gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "glm4"})
MLA_TYPES = frozenset(
    {
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite", "longcat_flash", "pangu_ultra_moe", "kimi_linear",
        "axk1", "minicpm3",
    }
)  # fmt: skip
WIDTH_NAMES = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "feed_forward_hidden_size")
WIDTH_NAMES_LLAMA4 = ("intermediate_size_mlp", "intermediate_size")  # intermediate_size is an expert's width there
LEARNED_POSITIONS = {"opt": 2, "gpt2": 0, "gpt_bigcode": 0, "whisper": 0}
UNGATED_TYPES = frozenset(
    {"opt", "gpt2", "gpt_bigcode", "gpt_neox", "falcon", "bloom", "phi", "starcoder2", "whisper", "nemotron", "nemotron_h"}
)
LAYER_NORM_TYPES = frozenset(
    {"opt", "gpt2", "gpt_bigcode", "gpt_neox", "falcon", "bloom", "phi", "starcoder2", "whisper", "nemotron"}
)
