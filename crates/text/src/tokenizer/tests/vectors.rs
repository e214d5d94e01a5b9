//! Real vocabularies, compared with other tokenizers.

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
    /// If libllama's detokenizer removes spaces before punctuation, the text with them:
    /// engines must not remove them, since that breaks code.
    pieces: Option<String>,
}

/// The vocabularies and cases of the fixtures, if available.
fn fixtures() -> Option<PathBuf> {
    crate::absent::shared("fixtures/tokenizer")
}

/// A vocabulary, optionally with another splitting rule.
/// `None` for the one that the fixtures omit.
fn vocabulary(dir: &Path, vocab: &str, pre: Option<&str>, space_prefix: Option<bool>) -> Option<Tokenizer> {
    let (file, pre) = match vocab {
        // Differs from qwen2 only in its label, and is packed.
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
        // Split at \n only, since strings may contain U+2028.
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
    /// The cases in which the tokenizer differs.
    fn problems(&self, t: &Tokenizer) -> String {
        let mut problems = String::new();
        let bos = t.bos().filter(|_| self.add_special && t.add_bos());
        let ids = if self.add_special {
            t.encode_whole(&self.text, self.parse_special).unwrap()
        } else {
            t.encode(&self.text, self.parse_special).unwrap()
        };
        if ids != self.ids {
            problems += &format!("ids {ids:?} ");
        }
        // SentencePiece's pieces differ by the space before the text, which `detok` correctly
        // removes.
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

#[derive(Deserialize)]
struct PreCase {
    pre: String,
    vocab: Option<String>,
    model: Option<String>,
    text: String,
    ids: Vec<u32>,
    /// Ids from the model's own expression, if `ids` come from an approximation of it.
    expression_ids: Option<Vec<u32>>,
}

/// Every name of a splitting rule, on vocabularies in which each word is a token.
#[test]
fn vectors_of_every_pre_tokenizer() {
    let Some(dir) = fixtures() else { return };
    let dir = dir.join("../tokenizer-pre");
    let mut tokenizers: HashMap<String, Tokenizer> = HashMap::new();
    let (mut count, mut wrong) = (0, Vec::new());
    for line in std::fs::read_to_string(dir.join("vectors-pre.jsonl")).unwrap().split('\n') {
        let Ok(case) = serde_json::from_str::<PreCase>(line) else { continue };
        let t = tokenizers.entry(case.pre.clone()).or_insert_with(|| {
            let gguf = Gguf::open(&dir.join(case.vocab.as_deref().unwrap_or("pre.gguf"))).unwrap();
            let changed = Writer::copy_of(&gguf)
                .meta("tokenizer.ggml.pre", case.pre.as_str())
                .meta("tokenizer.ggml.model", case.model.as_deref().unwrap_or("gpt2"));
            let gguf = Gguf::from_vec("pre.gguf", changed.bytes().unwrap()).unwrap();
            // A file's own "default" is refused.
            let facts = TokenizerFacts { pre: Some("default".into()), ..TokenizerFacts::default() };
            Tokenizer::with_facts(&gguf, &facts).unwrap()
        });
        assert_eq!(t.pre_tokenizer(), Some(case.pre.as_str()));
        count += 1;
        let (ids, expected) = (t.encode(&case.text, false).unwrap(), case.expression_ids.unwrap_or(case.ids));
        if ids != expected {
            let words = |ids: &[u32]| ids.iter().map(|&id| t.decode(&[id], true)).collect::<Vec<_>>();
            wrong.push(format!(
                "{} {:?}\n   {:?}\n   {:?}",
                case.pre,
                case.text,
                words(&ids),
                words(&expected)
            ));
        }
    }
    println!("{} names, {count} texts", tokenizers.len());
    assert_eq!((tokenizers.len(), count), (91, 4368));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

#[derive(Deserialize)]
struct BertCase {
    text: String,
    ids: Vec<u32>,
}

/// A published vocabulary: all-MiniLM-L6-v2's, with known ids with and without the tokens around a
/// text.
#[test]
fn vectors_of_a_real_wordpiece_vocabulary() {
    let Some(dir) = fixtures() else { return };
    let models = std::env::var("ALARA_REAL_MODELS").unwrap_or_default();
    let Ok(json) = std::fs::read(Path::new(&models).join("all-MiniLM-L6-v2/tokenizer.json")) else {
        let how = "ALARA_REAL_MODELS names their folder";
        return crate::absent::skipped("real models", "all-MiniLM-L6-v2/tokenizer.json", how);
    };
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let mut pieces: Vec<(u64, &str)> = (json["model"]["vocab"].as_object().unwrap().iter())
        .map(|(piece, id)| (id.as_u64().unwrap(), piece.as_str()))
        .collect();
    pieces.sort();
    let t = kinds::wordpiece(pieces.iter().map(|(_, piece)| match piece.strip_prefix("##") {
        Some(rest) => rest.to_owned(),
        None if piece.len() > 2 && piece.starts_with('[') && piece.ends_with(']') => (*piece).to_owned(),
        None => format!("▁{piece}"),
    }));
    let mut count = 0;
    for (file, whole) in [("tokenizer-pre/vectors-bert.jsonl", false), ("embedding/minilm.jsonl", true)] {
        for line in std::fs::read_to_string(dir.join("..").join(file)).unwrap().split('\n') {
            let Ok(case) = serde_json::from_str::<BertCase>(line) else { continue };
            count += 1;
            let mut ids =
                if whole { t.encode_whole(&case.text, true) } else { t.encode(&case.text, false) }.unwrap();
            if ids.len() > 256 {
                // The fixture is truncated as well.
                ids.truncate(255);
                ids.push(102);
            }
            assert_eq!(ids, case.ids, "{:?}", case.text);
        }
    }
    assert_eq!(count, 48 + 16);
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
