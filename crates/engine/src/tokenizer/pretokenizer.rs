//! How text is cut into words before byte pairs are merged: one row a `tokenizer.ggml.pre`.
//!
//! Expressions are those of the models' own Hugging Face tokenizers. No row normalizes: for Qwen, Hugging Face states NFC,
//! but the tokens it is compared with are those of the text as it is.

use tokenizers::utils::SysRegex;

use super::{TokenizerError, TokenizerFacts};
use crate::gguf::Gguf;

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
    Rule { names: &["glm4", "chatglm-bpe"], regex: THREE_DIGITS, ignore_merges: true, add_bos: false },
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
    /// The row that the file names; where it names none or `default`, the one that `facts` name.
    pub(super) fn of(
        gguf: &Gguf,
        tokens: usize,
        facts: &TokenizerFacts,
    ) -> Result<&'static Rule, TokenizerError> {
        let key = "tokenizer.ggml.pre";
        let stated = gguf.metadata().str(key)?;
        let silent = matches!(stated, None | Some("default"));
        let applies = silent && facts.tokens.is_none_or(|size| size == tokens);
        let name = facts.pre.as_deref().filter(|_| applies).or(stated);
        let name = name.ok_or_else(|| gguf.metadata().missing(key))?;
        Rule::named(name).ok_or_else(|| TokenizerError::UnknownPreTokenizer {
            file: gguf.name().to_owned(),
            pre: name.to_owned(),
            known: Rule::known(),
        })
    }

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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        pre: Vec<String>,
        text: String,
        words: Vec<String>,
    }

    /// Words as another engine finds them (Python's `regex`), for every name in the table.
    #[test]
    fn words_of_every_rule() {
        let cases = include_str!("../../../../tests/fixtures/tokenizer/splits.jsonl");
        let mut unseen: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
        for case in cases.lines() {
            let case: Case = serde_json::from_str(case).unwrap();
            for pre in &case.pre {
                let regex = SysRegex::new(Rule::named(pre).unwrap().regex).unwrap();
                let mut words = Vec::new();
                split(&regex, &case.text, |_, word| {
                    words.push(word.to_owned());
                    Ok(())
                })
                .unwrap();
                assert_eq!(words, case.words, "{pre}");
                unseen.retain(|name| name != pre);
            }
        }
        assert_eq!(unseen, [""; 0]);
    }
}
