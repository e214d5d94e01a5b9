//! Real vocabularies, and what other tokenizers make of texts with them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Case {
    vocab: String,
    pre: Option<String>,
    add_space_prefix: Option<bool>,
    text: String,
    add_special: bool,
    parse_special: bool,
    ids: Vec<u32>,
    detok: Option<String>,
    detok_plain: Option<String>,
    /// Where libllama's detokenizer takes spaces away before punctuation, the text without that: engines must not, since
    /// it breaks code.
    pieces: Option<String>,
}

/// The vocabularies and cases of the fixtures, if they are here.
fn fixtures() -> Option<PathBuf> {
    let shared = std::env::var("ALARA_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let dir = PathBuf::from(shared).join("fixtures/tokenizer");
    if dir.exists() {
        return Some(dir);
    }
    println!("SKIPPED: no fixtures/tokenizer in $ALARA_SHARED");
    None
}

/// A vocabulary, perhaps with another splitting rule. `None` for the one that the fixtures leave out.
fn vocabulary(dir: &Path, vocab: &str, pre: Option<&str>, space_prefix: Option<bool>) -> Option<Tokenizer> {
    let (file, pre) = match vocab {
        // Differs from qwen2 in its label only, and is packed.
        "qwen35" => ("qwen2", Some("qwen35")),
        "gemma-4" => return None,
        other => (other, pre),
    };
    let gguf = Gguf::open(&dir.join(format!("vocabs/{file}.gguf"))).unwrap();
    let mut changed = Writer::copy_of(&gguf);
    if let Some(pre) = pre {
        changed = changed.meta("tokenizer.ggml.pre", pre);
    }
    if let Some(space_prefix) = space_prefix {
        changed = changed.meta("tokenizer.ggml.add_space_prefix", space_prefix);
    }
    let gguf = Gguf::from_vec(vocab, changed.bytes().unwrap()).unwrap();
    let start = Instant::now();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let took = start.elapsed();
    println!("{vocab} {}: {} tokens in {took:?}", pre.unwrap_or_default(), tokenizer.len());
    assert!(took < Duration::from_secs(10), "{vocab} took {took:?}");
    Some(tokenizer)
}

#[test]
fn vectors_of_real_vocabularies() {
    let Some(dir) = fixtures() else { return };
    let mut tokenizers = HashMap::new();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut wrong = Vec::new();
    for file in ["vectors.jsonl", "hf_vectors.jsonl", "relabelled.jsonl"] {
        // Split at \n only: strings hold U+2028.
        for line in
            std::fs::read_to_string(dir.join(file)).unwrap().split('\n').filter(|line| !line.is_empty())
        {
            let case: Case = serde_json::from_str(line).unwrap();
            let key = (case.vocab.clone(), case.pre.clone(), case.add_space_prefix);
            let tokenizer = tokenizers
                .entry(key)
                .or_insert_with(|| vocabulary(&dir, &case.vocab, case.pre.as_deref(), case.add_space_prefix));
            let Some(t) = tokenizer else { continue };
            *counts.entry(file).or_default() += 1;
            let problems = case.problems(t);
            if !problems.is_empty() {
                wrong.push(format!("{file} {line}\n   {problems}"));
            }
        }
    }
    println!("{counts:?}");
    assert_eq!(counts.values().sum::<usize>(), 388 * 5 + 47 * 4 + 51 + 212 * 5 + 160 * 2);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
}

impl Case {
    /// What the tokenizer makes otherwise.
    fn problems(&self, t: &Tokenizer) -> String {
        let mut problems = String::new();
        let bos = t.bos().filter(|_| self.add_special && t.add_bos());
        let ids: Vec<u32> =
            bos.into_iter().chain(t.encode(&self.text, self.parse_special).unwrap()).collect();
        if ids != self.ids {
            problems += &format!("ids {ids:?} ");
        }
        // SentencePiece's pieces differ by the space before the text, which `detok` rightly takes away.
        let pieces = self.pieces.as_deref().filter(|_| t.pre_tokenizer().is_some());
        let shown = pieces.or(self.detok.as_deref());
        let plain = match pieces {
            Some(pieces) => pieces.strip_prefix(bos.and_then(|id| t.token_text(id)).unwrap_or_default()),
            None => self.detok_plain.as_deref().or(shown),
        };
        for (expected, special) in [(shown, true), (plain, false)] {
            let Some(expected) = expected else { continue };
            let mut stream = if special { t.stream().with_special() } else { t.stream() };
            let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
            streamed.push_str(&stream.finish());
            for text in [t.decode(&ids, special), streamed] {
                if text != expected {
                    problems += &format!("text {text:?} for {expected:?} ");
                }
            }
        }
        problems
    }
}

#[test]
fn grammar_environment_of_a_real_vocabulary() {
    let Some(dir) = fixtures() else { return };
    let t = vocabulary(&dir, "qwen2", None, None).unwrap();
    let start = Instant::now();
    let env = t.env();
    println!("environment of {} tokens in {:?}", env.tok_trie().vocab_size(), start.elapsed());
    assert_eq!(env.tokenize("hello world"), t.encode("hello world", false).unwrap());
}

/// The synthetic tokenizer inside the architecture fixtures.
#[test]
fn tokenizer_of_the_architecture_fixtures() {
    #[derive(Deserialize)]
    struct Check {
        model: String,
        cases: Vec<CheckCase>,
    }
    #[derive(Deserialize)]
    struct CheckCase {
        text: String,
        ids: Vec<u32>,
    }
    let Some(dir) = fixtures() else { return };
    let arch = dir.join("../arch");
    let check: Check =
        serde_json::from_slice(&std::fs::read(arch.join("tokenizer_check.json")).unwrap()).unwrap();
    let gguf = Gguf::open(&arch.join(check.model).join("model.gguf")).unwrap();
    let t = Tokenizer::from_gguf(&gguf).unwrap();
    for case in check.cases {
        assert_eq!(t.encode_prompt(&case.text, &[]).unwrap(), case.ids, "{}", case.text);
    }
}
