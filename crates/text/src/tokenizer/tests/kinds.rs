//! Tokenizers other than BPE and SentencePiece's: compares with the results of other
//! implementations, using just the part of a vocabulary that the texts need.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Case {
    text: String,
    /// The pieces as files write them.
    pieces: Vec<String>,
}

fn cases(lines: &str) -> Vec<Case> {
    lines
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A file with these tokens.
fn file(model: &str, texts: &[String], kinds: Vec<u32>) -> Writer {
    Writer::new()
        .meta("tokenizer.ggml.model", model)
        .meta("tokenizer.ggml.tokens", texts.iter().collect::<Strings>())
        .meta("tokenizer.ggml.token_type", kinds)
}

fn written<'t>(t: &'t Tokenizer, ids: &[u32]) -> Vec<&'t str> {
    ids.iter().map(|&id| t.token_text(id).unwrap()).collect()
}

/// BERT's tokenizer, whose files don't mark special tokens.
pub(super) fn wordpiece(pieces: impl Iterator<Item = String>) -> Tokenizer {
    let pieces: Vec<String> = pieces.collect();
    let kinds = pieces.iter().map(|piece| if piece.starts_with('[') && piece.len() > 2 { 3 } else { 1 });
    load(&file("bert", &pieces, kinds.collect())).unwrap()
}

/// Ids from Hugging Face's `tokenizers` with all-MiniLM-L6-v2's vocabulary.
#[test]
fn wordpiece_of_minilm() {
    let cases = cases(include_str!("../../../../../tests/fixtures/tokenizer/wordpiece.jsonl"));
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(String::from);
    let pieces: BTreeSet<String> = cases.iter().flat_map(|case| &case.pieces).cloned().collect();
    let t =
        wordpiece(special.iter().cloned().chain(pieces.into_iter().filter(|piece| !special.contains(piece))));
    for case in &cases {
        let ids = t.encode(&case.text, false).unwrap();
        assert_eq!(written(&t, &ids), case.pieces, "{:?}", case.text);
        assert_eq!(t.encode_whole(&case.text, false).unwrap(), [&[2], &ids[..], &[3]].concat());
    }
    assert_eq!(
        (t.algorithm(), t.bos(), t.add_bos(), t.ends_of_turn()),
        ("wordpiece", Some(2), true, &[3][..])
    );
    // Plain text never becomes a special token; a word without pieces becomes the unknown one, and
    // so does a long word.
    assert!(t.encode("[SEP][CLS]", false).unwrap().iter().all(|id| ![2, 3].contains(id)));
    assert_eq!(t.encode("[SEP]", true).unwrap(), [3]);
    assert_eq!(written(&t, &t.encode("ጀ", false).unwrap()), ["[UNK]"]);
    assert_eq!(written(&t, &t.encode(&"a".repeat(101), false).unwrap()), ["[UNK]"]);
    assert_eq!(t.decode(&t.encode("Hello, WORLD", false).unwrap(), false), "hello , world");
}

/// Ids from the reference implementation with the world vocabulary of 2023-04-24.
#[test]
fn rwkv_world() {
    let cases = cases(include_str!("../../../../../tests/fixtures/tokenizer/rwkv.jsonl"));
    let bytes: Vec<String> = (0..=255).map(|byte| format!("\\x{byte:02x}")).collect();
    let longer: BTreeSet<&String> = cases.iter().flat_map(|case| &case.pieces).collect();
    let mut texts = vec!["<s>".to_owned()];
    // Of a byte and a piece with the same byte, the piece comes first.
    texts.extend(longer.into_iter().cloned());
    texts.extend(bytes);
    let kinds = (0..texts.len()).map(|id| if id == 0 { 3 } else { 1 }).collect();
    let end = texts.iter().position(|text| text == r"\n\n").unwrap() as u32;
    let t = load(&file("rwkv", &texts, kinds).meta("tokenizer.ggml.eot_token_id", end)).unwrap();
    for case in &cases {
        let ids = t.encode(&case.text, false).unwrap();
        assert_eq!(written(&t, &ids), case.pieces, "{:?}", case.text);
        assert_eq!(t.decode(&ids, false), case.text);
    }
    assert_eq!((t.algorithm(), t.add_bos(), t.ends_of_turn()), ("rwkv", false, &[end][..]));
    // Half a character is a token of its own, which a grammar can traverse.
    assert_eq!(t.round_trip("ጀ<s>\0").unwrap(), "ጀ<s>\0");
    assert_eq!(t.env().tokenize(&cases[0].text), t.encode(&cases[0].text, false).unwrap());
}

#[derive(Deserialize)]
struct Unigram {
    name: String,
    pieces: Vec<String>,
    scores: Vec<f32>,
    kinds: Vec<u32>,
    charsmap: Vec<u8>,
    remove_extra_whitespaces: bool,
    add_space_prefix: bool,
    cases: Vec<UnigramCase>,
}

#[derive(Deserialize)]
struct UnigramCase {
    text: String,
    ids: Vec<u32>,
}

/// Ids from SentencePiece itself, with three small models that it trained.
#[test]
fn unigram_models() {
    let json = include_str!("../../../../../tests/fixtures/tokenizer/unigram.json");
    let models: Vec<Unigram> = serde_json::from_str(json).unwrap();
    for model in models {
        let writer = file("t5", &model.pieces, model.kinds)
            .meta("tokenizer.ggml.scores", model.scores)
            .meta("tokenizer.ggml.precompiled_charsmap", model.charsmap)
            .meta("tokenizer.ggml.remove_extra_whitespaces", model.remove_extra_whitespaces)
            .meta("tokenizer.ggml.add_space_prefix", model.add_space_prefix)
            .meta("tokenizer.ggml.eos_token_id", 2u32);
        let t = load(&writer).unwrap();
        let plain = model.name == "plain";
        assert_eq!((t.algorithm(), t.normalizes()), ("unigram", !plain));
        for case in &model.cases {
            let ids = t.encode(&case.text, false).unwrap();
            assert_eq!(ids, case.ids, "{} {:?} {:?}", model.name, case.text, written(&t, &ids));
            assert_eq!(t.encode_whole(&case.text, false).unwrap(), [&ids[..], &[2]].concat());
            if plain {
                assert_eq!(t.decode(&ids, false), case.text.replace('▁', " "));
            }
        }
        // A grammar's text is tokenized verbatim, whatever the model would normalize.
        let text = "a  b";
        let tokens: Vec<u8> =
            t.env().tokenize(text).iter().flat_map(|&id| t.token_bytes(id).to_vec()).collect();
        assert_eq!(String::from_utf8(tokens).unwrap(), text);
        // No text becomes a control token.
        assert!(!t.encode("</s><s>", false).unwrap().iter().any(|&id| t.kind(id) == TokenKind::Control));
    }
    let damaged = file("t5", &["<unk>".into(), "</s>".into(), "a".into()], vec![2, 3, 1])
        .meta("tokenizer.ggml.scores", vec![0f32, 0.0, -1.0])
        .meta("tokenizer.ggml.eos_token_id", 1u32)
        .meta("tokenizer.ggml.precompiled_charsmap", vec![9u8; 5]);
    let expected = "tiny.gguf: the vocabulary is inconsistent: tokenizer.ggml.precompiled_charsmap is no table of characters";
    assert_eq!(load(&damaged).unwrap_err().to_string(), expected);
}

/// All segmentations of a text, with their total scores.
fn ways(text: &str, pieces: &[(&str, f32)]) -> Vec<(i64, Vec<String>)> {
    let Some(letter) = text.chars().next() else { return vec![(0, Vec::new())] };
    let mut all = Vec::new();
    let first = letter.to_string();
    let bytes: Vec<String> = first.bytes().map(|byte| format!("<0x{byte:02X}>")).collect();
    let known = pieces
        .iter()
        .filter(|piece| text.starts_with(piece.0))
        .map(|piece| (piece.0.len(), (piece.1 * 1e4).round() as i64, vec![piece.0.to_owned()]));
    for (length, score, piece) in known.chain([(first.len(), -10_000_000, bytes)]) {
        for (rest, tail) in ways(&text[length..], pieces) {
            all.push((score + rest, [piece.clone(), tail].concat()));
        }
    }
    all
}

/// The model's vocabulary isn't available, so compare with a search through all segmentations.
#[test]
fn plamo_takes_the_best_of_all_ways() {
    let pieces = [
        ("a", -5.0),
        ("b", -5.0),
        ("ab", -7.0),
        ("ba", -6.5),
        ("abab", -17.0),
        (" a", -4.0),
        (" ", -3.0),
        ("é", -9.0),
        ("aé", -12.0),
        ("bad", -2500.0),
        ("d", -1.0),
    ];
    let mut texts: Vec<String> =
        ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>"].map(String::from).to_vec();
    let (mut kinds, mut scores) = (vec![2, 3, 3], vec![0f32; 3]);
    for byte in 0..=255 {
        texts.push(format!("<0x{byte:02X}>"));
        kinds.push(6);
        scores.push(0.0);
    }
    for (piece, score) in pieces {
        texts.push(piece.to_owned());
        kinds.push(1);
        scores.push(score);
    }
    let writer = file("plamo2", &texts, kinds).meta("tokenizer.ggml.eos_token_id", 2u32);
    let t = load(&writer.meta("tokenizer.ggml.scores", scores)).unwrap();
    assert_eq!(t.algorithm(), "plamo2");
    for text in ["", "ababab", "babab a", " aé b", "bad", "x😀a", "<0x41>", "▁ a", "aaaé  ab"] {
        let ids = t.encode(text, false).unwrap();
        let ways = ways(text, &pieces);
        let best = ways.iter().map(|way| way.0).max().unwrap();
        let found =
            ways.iter().find(|way| way.1 == written(&t, &ids)).unwrap_or_else(|| panic!("{text:?} {ids:?}"));
        assert_eq!(found.0, best, "{text:?} {:?}", found.1);
        assert_eq!(t.decode(&ids, false), text);
    }
    // A piece below the minimum score is ignored, and of equal segmentations the one with the
    // longer first piece wins.
    assert!(!written(&t, &t.encode("bad", false).unwrap()).contains(&"bad"));
    assert_eq!(t.env().tokenize("ab a"), t.encode("ab a", false).unwrap());
    let error = load(&file("plamo2", &["</s>".into()], vec![3]).meta("tokenizer.ggml.scores", vec![0f32]))
        .unwrap_err();
    assert_eq!(error.to_string(), "tiny.gguf: the vocabulary is inconsistent: there is no token <0x00>");
}
