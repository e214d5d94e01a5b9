//! How text is cut into words before byte pairs are merged: one row a `tokenizer.ggml.pre`.
//!
//! Expressions are those of the models' own Hugging Face tokenizers. No row normalizes: for Qwen, Hugging Face states NFC,
//! but the tokens it is compared with are those of the text as it is.

use tokenizers::utils::SysRegex;

use super::TokenizerError;

/// A row of the table.
#[derive(Debug)]
pub(super) struct Rule {
    /// Values of `tokenizer.ggml.pre`.
    pub(super) names: &'static [&'static str],
    pub(super) regex: &'static str,
    /// A word that is a token as a whole is that token, whether or not merges lead to it.
    pub(super) ignore_merges: bool,
    /// Whether a text begins with BOS where the file does not say.
    pub(super) add_bos: bool,
}

/// Contractions, and a non-letter before letters.
macro_rules! words {
    ($letters:literal, $numbers:literal, $others:literal) => {
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?",
            $letters,
            "+|",
            $numbers,
            r"| ?[^\s",
            $others,
            r"]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// Words cut where lower case turns to upper case. `$suffix`: contractions stay with their word.
macro_rules! cased {
    ($suffix:literal, $numbers:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
            "|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

const THREE_DIGITS: &str = words!(r"\p{L}", r"\p{N}{1,3}", r"\p{L}\p{N}");

pub(super) const RULES: &[Rule] = &[
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3"],
        regex: THREE_DIGITS,
        ignore_merges: true,
        add_bos: true,
    },
    Rule { names: &["dbrx"], regex: THREE_DIGITS, ignore_merges: false, add_bos: false },
    Rule { names: &["glm4"], regex: THREE_DIGITS, ignore_merges: true, add_bos: false },
    Rule {
        names: &["qwen2", "deepseek-r1-qwen"],
        regex: words!(r"\p{L}", r"\p{N}", r"\p{L}\p{N}"),
        ignore_merges: false,
        add_bos: false,
    },
    Rule {
        names: &["qwen35"],
        regex: words!(r"[\p{L}\p{M}]", r"\p{N}", r"\p{L}\p{M}\p{N}"),
        ignore_merges: false,
        add_bos: false,
    },
    Rule {
        names: &["gpt-4o"],
        regex: cased!(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}"),
        ignore_merges: false,
        add_bos: false,
    },
    Rule { names: &["tekken"], regex: cased!("", r"\p{N}"), ignore_merges: true, add_bos: true },
    Rule {
        names: &["gpt-2"],
        regex: r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        ignore_merges: false,
        add_bos: false,
    },
];

impl Rule {
    /// The row for a name.
    pub(super) fn named(name: &str) -> Option<&'static Rule> {
        RULES.iter().find(|rule| rule.names.contains(&name))
    }

    /// All names, for messages.
    pub(super) fn known() -> String {
        let names: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
        names.join(", ")
    }
}

/// Cuts `text` into words. Every rule matches at every character, so a gap means that the expression gave up.
pub(super) fn split(
    regex: &SysRegex,
    text: &str,
    mut word: impl FnMut(usize, &str) -> Result<(), TokenizerError>,
) -> Result<(), TokenizerError> {
    let gave_up =
        |at| Err(TokenizerError::Text { at, problem: "the splitting expression gave up".to_owned() });
    let mut at = 0;
    for (start, end) in regex.find_iter(text) {
        if start != at || end == start {
            return gave_up(at);
        }
        word(at, &text[start..end])?;
        at = end;
    }
    if at == text.len() { Ok(()) } else { gave_up(at) }
}
