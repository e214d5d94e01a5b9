//! Fills in text between two others (fill in the middle), with models trained for it.

use alara_engine::Engine;

use crate::refusal::Refusal;

/// The markers of a model family: before the first text, before the last, and before the one in
/// between; and between files, if it supports several.
struct Markers {
    prefix: &'static str,
    suffix: &'static str,
    middle: &'static str,
    file: Option<&'static str>,
}

/// The markers of the families, as their tokenizers have them (Qwen 2.5 Coder and later, StarCoder
/// and Granite, DeepSeek Coder, Code Llama, CodeGemma, Codestral).
const FAMILIES: [Markers; 7] = [
    Markers {
        prefix: "<|fim_prefix|>",
        suffix: "<|fim_suffix|>",
        middle: "<|fim_middle|>",
        file: Some("<|file_sep|>"),
    },
    Markers {
        prefix: "<fim_prefix>",
        suffix: "<fim_suffix>",
        middle: "<fim_middle>",
        file: Some("<file_sep>"),
    },
    Markers { prefix: "<fim-prefix>", suffix: "<fim-suffix>", middle: "<fim-middle>", file: None },
    Markers {
        prefix: "<｜fim▁begin｜>", suffix: "<｜fim▁hole｜>", middle: "<｜fim▁end｜>", file: None
    },
    Markers { prefix: "▁<PRE>", suffix: "▁<SUF>", middle: "▁<MID>", file: None },
    Markers { prefix: "<PRE>", suffix: "<SUF>", middle: "<MID>", file: None },
    Markers { prefix: "<|code_prefix|>", suffix: "<|code_suffix|>", middle: "<|code_middle|>", file: None },
];

/// Returns the family whose markers are all in a vocabulary.
fn family(known: impl Fn(&str) -> bool) -> Option<&'static Markers> {
    FAMILIES.iter().find(|markers| known(markers.prefix) && known(markers.suffix) && known(markers.middle))
}

/// Whether a model was trained to fill in text: `known` tells whether a marker is in its
/// vocabulary.
pub fn fills_in(known: impl Fn(&str) -> bool) -> bool {
    family(known).is_some()
}

/// Returns the prompt for the text between `before` and `after`; `extra` precedes both.
///
/// # Errors
/// The model's vocabulary has no such markers.
pub fn prompt(engine: &Engine, before: &str, after: &str, extra: &str) -> Result<String, Refusal> {
    let known = |text: &str| engine.tokenizer().id(text).is_some();
    let Some(Markers { prefix, suffix, middle, file }) = family(known) else {
        return Err(Refusal::unable(
            "this model was not trained to fill in text (its vocabulary has no markers for it); leave out the suffix",
        ));
    };
    let extra = match file.filter(|file| known(file) && !extra.is_empty()) {
        Some(file) => format!("{file}{extra}\n{file}"),
        None => String::new(),
    };
    Ok(format!("{extra}{prefix}{before}{suffix}{after}{middle}"))
}
