//! Cases of `$ALARA_SHARED/fixtures/arch-more` that do not agree yet. A test fails as soon as one of them does: it then leaves this list.

/// Their names.
pub const NOT_YET: &[&str] = &[
    // Experts.
    "deepseek2-v2lite-exact",
    "deepseek2-v3-exact",
    "ernie4_5-moe-exact",
    "gemma4-exact",
    "gemma4-moe-exact",
    "glm4moe-exact",
    "granitemoe-exact",
    "llama4-exact",
    "minimax-m2-exact",
    "qwen2moe-exact",
];
