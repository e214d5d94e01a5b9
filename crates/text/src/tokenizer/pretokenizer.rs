//! Splits text into words before byte pairs are merged: each rule is an entry of
//! `models/pretokenizers.yaml`, embedded at build time.
//! That file documents the keys.

use std::sync::LazyLock;

use fancy_regex::Regex;
use serde::Deserialize;

use super::vocabulary::Spelling;
use super::{TokenizerError, TokenizerFacts};
use crate::gguf::Gguf;
use crate::nearest;

static RULES: LazyLock<Result<Vec<Rule>, String>> = LazyLock::new(|| {
    const TABLE: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", env!("ALARA_MODELS"), "/pretokenizers.yaml"));
    serde_saphyr::from_str(TABLE).map_err(|error| error.to_string())
});

/// An entry of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Values of `tokenizer.ggml.pre`.
    pub(super) names: Vec<String>,
    /// Expressions, each applied to the pieces that the previous one left.
    pub(super) split: Vec<String>,
    #[serde(default)]
    pub(super) ignore_merges: IgnoreMerges,
    #[serde(default)]
    pub(super) add_bos: AddBos,
    #[serde(default)]
    pub(super) spelling: Spelling,
    /// Whether the text between matches is dropped.
    #[serde(default)]
    pub(super) drop_gaps: bool,
}

/// Which words become a token directly if they equal one, whether or not merges lead to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IgnoreMerges {
    #[default]
    Never,
    /// Runs of line feeds.
    Lines,
    Always,
}

/// Whether a prompt begins with BOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AddBos {
    /// If the file sets it.
    #[default]
    Asked,
    /// Unless the file denies it.
    Unasked,
    /// Always, whatever the file has.
    Always,
}

impl AddBos {
    /// `stated` is the file's own setting.
    pub(super) fn given(self, stated: Option<bool>) -> bool {
        match self {
            AddBos::Asked => stated.unwrap_or(false),
            AddBos::Unasked => stated.unwrap_or(true),
            AddBos::Always => true,
        }
    }
}

impl Rule {
    /// The name and entry in the file; if it has none or `default`, those in `facts`.
    /// Converters write `default` if they don't know the rule.
    pub(super) fn of(
        gguf: &Gguf,
        tokens: usize,
        facts: &TokenizerFacts,
    ) -> Result<(&'static str, &'static Rule), TokenizerError> {
        let key = "tokenizer.ggml.pre";
        let stated = gguf.metadata().str(key)?;
        let silent = matches!(stated, None | Some("default"));
        let applies = silent && facts.tokens.is_none_or(|size| size == tokens);
        match (facts.pre.as_deref().filter(|_| applies), stated) {
            (Some(name), _) => Rule::named(gguf, name),
            (None, Some("default")) => {
                Err(TokenizerError::DefaultPreTokenizer { file: gguf.name().to_owned() })
            }
            (None, stated) => Rule::named(gguf, stated.ok_or_else(|| gguf.metadata().missing(key))?),
        }
    }

    /// The entry for a name.
    pub(super) fn named(gguf: &Gguf, name: &str) -> Result<(&'static str, &'static Rule), TokenizerError> {
        let rules = rules()?;
        let found =
            rules.iter().find_map(|rule| Some((rule.names.iter().find(|n| *n == name)?.as_str(), rule)));
        found.ok_or_else(|| {
            let known = rules.iter().flat_map(|rule| &rule.names).map(String::as_str);
            TokenizerError::UnknownPreTokenizer {
                file: gguf.name().to_owned(),
                pre: name.to_owned(),
                known: known.clone().count(),
                hint: nearest::hint(name, known),
            }
        })
    }
}

/// The whole table.
pub(super) fn rules() -> Result<&'static [Rule], TokenizerError> {
    RULES.as_deref().map_err(|problem| TokenizerError::Rules { problem: problem.clone() })
}

/// The expressions of a rule.
#[derive(Debug)]
pub(super) struct Splitter {
    steps: Vec<Regex>,
    drop_gaps: bool,
}

impl Splitter {
    pub(super) fn new(rule: &Rule) -> Result<Splitter, TokenizerError> {
        let steps: Result<_, _> = rule.split.iter().map(|expression| Regex::new(expression)).collect();
        let steps = steps.map_err(|error| TokenizerError::Rules { problem: error.to_string() })?;
        Ok(Splitter { steps, drop_gaps: rule.drop_gaps })
    }

    /// Splits `text` into words; calls `word` with the offset of each.
    pub(super) fn split(
        &self,
        text: &str,
        mut word: impl FnMut(usize, &str) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        self.step(&self.steps, 0, text, &mut word)
    }

    fn step<W: FnMut(usize, &str) -> Result<(), TokenizerError>>(
        &self,
        steps: &[Regex],
        at: usize,
        text: &str,
        word: &mut W,
    ) -> Result<(), TokenizerError> {
        if text.is_empty() {
            return Ok(());
        }
        let Some((first, rest)) = steps.split_first() else { return word(at, text) };
        let mut from = 0;
        for found in first.find_iter(text) {
            let gave_up = |problem: fancy_regex::Error| TokenizerError::Text {
                at: at + from,
                problem: format!("the splitting expression gave up: {problem}"),
            };
            let found = found.map_err(gave_up)?;
            if !self.drop_gaps && found.start() > from {
                self.step(rest, at + from, &text[from..found.start()], word)?;
            }
            self.step(rest, at + found.start(), found.as_str(), word)?;
            from = found.end();
        }
        if self.drop_gaps { Ok(()) } else { self.step(rest, at + from, &text[from..], word) }
    }
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

    /// Words as other engines split them (Python's `regex`, llama.cpp), for every name in the
    /// table.
    #[test]
    fn words_of_every_rule() {
        let cases = include_str!("../../../../tests/fixtures/tokenizer/splits.jsonl");
        let rules = rules().unwrap();
        let splitters: Vec<Splitter> = rules.iter().map(|rule| Splitter::new(rule).unwrap()).collect();
        let mut unseen: Vec<&str> = rules.iter().flat_map(|rule| &rule.names).map(String::as_str).collect();
        for case in cases.split('\n').filter(|line| !line.is_empty()) {
            let case: Case = serde_json::from_str(case).unwrap();
            for pre in &case.pre {
                let index = rules.iter().position(|rule| rule.names.contains(pre)).unwrap();
                let mut words = Vec::new();
                splitters[index]
                    .split(&case.text, |at, word| {
                        assert!(case.text[at..].starts_with(word));
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

    #[test]
    fn no_name_stands_for_two_rules() {
        let mut names: Vec<&String> = rules().unwrap().iter().flat_map(|rule| &rule.names).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
