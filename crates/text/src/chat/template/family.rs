//! Families of models: the template for a file that has none, and texts that end a turn besides
//! tokens.
//!
//! The facts of a file determine its family; a file that matches none has none.
//! The table is `models/templates/families.yaml`, embedded at build time like the templates in that
//! folder.
//! Knows a model only through its [`Traits`].

use std::sync::LazyLock;

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::{Map, Value};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/$ALARA_MODELS/templates");

static FAMILIES: LazyLock<Result<Vec<Family>, String>> = LazyLock::new(|| {
    let text = FILES.get_file("families.yaml").and_then(|file| file.contents_utf8()).unwrap_or_default();
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
});

/// Models that were trained on the same prompt format.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// The name in reports.
    #[serde(rename = "family")]
    pub name: String,
    /// Values of `general.architecture`.
    pub architectures: Vec<String>,
    /// Texts that must all be special tokens.
    pub tokens: Vec<String>,
    /// Texts none of which may be a special token.
    #[serde(default)]
    pub without: Vec<String>,
    /// Text of the BOS token.
    #[serde(default)]
    pub bos: Option<String>,
    /// Text of the EOS token.
    #[serde(default)]
    pub eos: Option<String>,
    /// A word that the model's name contains, in lower case.
    #[serde(default)]
    pub named: Option<String>,
    /// Name of the built-in template.
    template: String,
    /// Variables of the template in addition to the conversation.
    #[serde(default)]
    pub variables: Map<String, Value>,
    /// Texts that end a turn but aren't tokens.
    #[serde(default)]
    pub stops: Vec<String>,
}

/// The facts of a model file by which families differ.
#[derive(Clone, Copy)]
pub struct Traits<'a> {
    /// The value of `general.architecture`.
    pub architecture: &'a str,
    /// The names that the file gives its model, concatenated.
    pub name: &'a str,
    /// Whether a text is a control or user-defined token.
    pub special: &'a dyn Fn(&str) -> bool,
    /// Text of the BOS token, or empty.
    pub bos: &'a str,
    /// Text of the EOS token, or empty.
    pub eos: &'a str,
}

impl Family {
    /// The matching family; `None` if none matches.
    ///
    /// # Errors
    /// If the embedded table is invalid: the YAML reader's message.
    pub fn of(model: &Traits) -> Result<Option<&'static Family>, String> {
        let families = FAMILIES.as_ref().map_err(Clone::clone)?;
        Ok(families.iter().find(|family| family.fits(model)))
    }

    fn fits(&self, model: &Traits) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text);
        let name = model.name.to_lowercase();
        self.architectures.iter().any(|name| name == model.architecture)
            && self.tokens.iter().all(|token| (model.special)(token))
            && !self.without.iter().any(|token| (model.special)(token))
            && is(&self.bos, model.bos)
            && is(&self.eos, model.eos)
            && self.named.as_ref().is_none_or(|word| name.contains(word))
    }

    /// The source of the built-in template.
    pub fn template(&self) -> &'static str {
        FILES.get_file(&self.template).and_then(|file| file.contents_utf8()).unwrap_or_default()
    }

    /// The names of all families, for messages.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<&str> = FAMILIES.iter().flatten().map(|family| family.name.as_str()).collect();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the family of a model whose special tokens are `tokens`: the first is BOS and the
    /// last EOS.
    fn check(architecture: &str, name: &str, tokens: &[&str], expected: Option<&str>) {
        let special = |text: &str| tokens.contains(&text);
        let (bos, eos) = (tokens.first().copied(), tokens.last().copied());
        let (bos, eos) = (bos.unwrap_or_default(), eos.unwrap_or_default());
        let family = Family::of(&Traits { architecture, name, special: &special, bos, eos }).unwrap();
        assert_eq!(family.map(|family| family.name.as_str()), expected, "{architecture} {tokens:?}");
    }

    #[test]
    fn every_family_has_its_template_and_every_template_its_family() {
        let families = FAMILIES.as_ref().unwrap();
        for family in families {
            assert!(!family.template().is_empty(), "{}", family.template);
        }
        for file in FILES.files().filter(|file| file.path().extension().is_some_and(|end| end == "jinja")) {
            assert!(families.iter().any(|family| file.path().to_str() == Some(&family.template)), "{file:?}");
        }
    }

    #[test]
    fn families_are_told_by_their_tokens() {
        let qwen = ["<|endoftext|>", "<|im_start|>", "<think>", "</think>", "<tool_call>", "<|im_end|>"];
        check("qwen3", "", &qwen, Some("qwen3"));
        check("qwen3moe", "", &qwen, Some("qwen3"));
        check("qwen35moe", "", &qwen, Some("qwen3.5"));
        check("qwen3", "", &qwen[..2], None);
        check("gemma3", "", &["<bos>", "<start_of_turn>", "<end_of_turn>", "<eos>"], Some("gemma3"));
        check("phi3", "", &["<|im_start|>", "<|im_sep|>", "<|im_end|>"], Some("phi-4"));
        check("phi3", "", &["<s>", "<|user|>", "<|end|>"], None);
        check("olmo2", "", &["<|endoftext|>"], Some("olmo2"));
    }

    #[test]
    fn deepseek_is_not_glm() {
        let glm =
            ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>"];
        let glm = [&glm[..], &["<tool_call>", "<|endoftext|>"]].concat();
        check("glm4moelite", "", &glm, Some("glm-4.7"));
        check("deepseek2", "", &glm, Some("glm-4.7"));
        check("deepseek2", "", &["<｜begin▁of▁sentence｜>", "<｜User｜>"], None);
    }

    #[test]
    fn base_models_and_foreign_descendants_of_llama_have_none() {
        let llama = ["<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>"];
        let of = |bos, eos| [&[bos], &llama[..], &[eos]].concat();
        check("llama", "", &of("<|begin_of_text|>", "<|eot_id|>"), Some("llama-3.1"));
        check("llama", "", &of("<|begin_of_text|>", "<|end_of_text|>"), None);
        check("llama", "", &of("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"), None);
    }

    #[test]
    fn mistrals_are_told_by_ids_and_thoughts() {
        let small = ["<s>", "[SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]"];
        let with = |more: &[&'static str]| [&small[..], more, &["</s>"]].concat();
        check("mistral3", "", &with(&["[CALL_ID]", "[TOOL_CONTENT]"]), Some("mistral-small-3.2"));
        check("llama", "", &with(&["[CALL_ID]", "[TOOL_CONTENT]"]), Some("mistral-small-3.2"));
        check("mistral3", "", &with(&[]), Some("ministral-3"));
        check("mistral3", "", &with(&["[CALL_ID]", "[TOOL_CONTENT]", "[THINK]"]), Some("ministral-3"));
        check("mistral3", "Reasoning-2512", &with(&["[THINK]"]), Some("ministral-3-reasoning"));
    }
}
