//! What an architecture file says about its tokenizer.

use serde::Deserialize;

use crate::architecture::Architecture;
use crate::gguf::Gguf;

/// Facts that some files of an architecture leave out, the key `tokenizer` of an architecture file.
/// What a file says itself counts for more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerFacts {
    /// The splitting rule where `tokenizer.ggml.pre` is absent or `default`.
    /// Default: none, such a file is refused.
    pub pre: Option<String>,
    /// Size of the vocabulary to which `pre` applies, where an architecture has several.
    /// Default: any.
    pub tokens: Option<usize>,
    /// Whether SentencePiece puts a space before a text where `tokenizer.ggml.add_space_prefix` is
    /// absent.
    /// Default: yes.
    pub space_prefix: Option<bool>,
}

impl TokenizerFacts {
    /// The facts for `gguf`; none if its architecture is not known, as in files that hold just a
    /// vocabulary.
    pub fn of(gguf: &Gguf) -> TokenizerFacts {
        Architecture::of(gguf).map(|architecture| architecture.tokenizer).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Writer;

    /// What Ollama's files leave out.
    /// An architecture that is not there yet has nothing to say.
    #[test]
    fn architectures_fill_in_what_files_leave_out() {
        #[track_caller]
        fn check(architecture: &str, pre: Option<&str>, tokens: Option<usize>, space_prefix: Option<bool>) {
            let bytes = Writer::new().meta("general.architecture", architecture).bytes().unwrap();
            let gguf = Gguf::from_vec("tiny.gguf", bytes).unwrap();
            if Architecture::of(&gguf).is_err() {
                println!("SKIPPED: there is no architecture {architecture}");
                assert_eq!(TokenizerFacts::of(&gguf), TokenizerFacts::default());
                return;
            }
            let expected = TokenizerFacts { pre: pre.map(str::to_owned), tokens, space_prefix };
            assert_eq!(TokenizerFacts::of(&gguf), expected, "{architecture}");
        }
        check("nobody", None, None, None);
        check("qwen3", None, None, None);
        check("llama", Some("llama-bpe"), Some(128_256), None);
        check("gemma3", None, None, Some(false));
        check("gptoss", Some("gpt-4o"), None, None);
        check("mistral3", Some("tekken"), None, None);
        check("glm4moelite", Some("glm4"), Some(154_880), None);
    }
}
