//! A small vocabulary, and the vectors of real ones.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::gguf::{Strings, Writer};

/// All bytes, a few merges, and special tokens of every kind: `ids` of the bytes are the bytes themselves.
fn tiny() -> Writer {
    let mut tokens: Vec<String> = (0..=255).map(|b| alphabet::letter(b).to_string()).collect();
    let mut kinds = vec![1u32; 256];
    let mut add = |text: &str, kind: u32| {
        tokens.push(text.to_owned());
        kinds.push(kind);
    };
    for merged in ["he", "ll", "llo", "hello", "Ġw"] {
        add(merged, 1);
    }
    add("<|im_start|>", 3);
    add("<|im_end|>", 3);
    add("<think>", 4);
    add("<think>>", 4);
    add("<|endoftext|>", 3);
    add("<unused>", 5);
    add("<|endoftext|>", 3);
    add("", 5);
    Writer::new()
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "qwen2")
        .meta("tokenizer.ggml.tokens", tokens.iter().collect::<Strings>())
        .meta("tokenizer.ggml.token_type", kinds)
        .meta("tokenizer.ggml.merges", ["h e", "l l", "ll o", "he llo", "Ġ w"].iter().collect::<Strings>())
        .meta("tokenizer.ggml.eos_token_id", 262u32)
        .meta("tokenizer.ggml.bos_token_id", 265u32)
}

const START: u32 = 261;
const END: u32 = 262;
const THINK: u32 = 263;
const TEXT_END: u32 = 265;

fn load(writer: &Writer) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_gguf(&Gguf::from_vec("tiny.gguf", writer.bytes().unwrap()).unwrap())
}

#[test]
fn encodes_words_and_special_tokens() {
    let t = load(&tiny()).unwrap();
    let check = |text: &str, special: bool, expected: &[u32]| {
        assert_eq!(t.encode(text, special).unwrap(), expected, "{text}");
        assert_eq!(t.decode(expected, true), text);
    };
    check("", true, &[]);
    check("hello", true, &[259]);
    check("hello world", true, &[259, 260, 111, 114, 108, 100]);
    check("é", true, &[0xc3, 0xa9]);
    check("<|im_start|>hello", true, &[START, 259]);
    check("<|im_", true, &[60, 124, 105, 109, 95]);
    // Control tokens only when asked for, user-defined always, the longer of two.
    check("<think><|x", false, &[THINK, 60, 124, 120]);
    check("<think>>", false, &[264]);
    assert_eq!(t.encode("<|im_end|>", false).unwrap().len(), "<|im_end|>".len());
    assert_eq!(t.decode(&[START, 259, THINK, END, 999], false), "hello<think>");
}

#[test]
fn knows_its_tokens() {
    let t = load(&tiny()).unwrap();
    assert_eq!((t.len(), t.bos(), t.eos(), t.add_bos()), (269, Some(TEXT_END), Some(END), false));
    // Of two tokens with one text the first counts; both end a text.
    assert_eq!(t.ends_of_turn(), [END, TEXT_END, 267]);
    assert!(t.is_end_of_turn(END) && !t.is_end_of_turn(START));
    assert_eq!((t.token_text(260), t.token_bytes(260)), (Some("Ġw"), &b" w"[..]));
    assert_eq!((t.token_text(999), t.token_bytes(999)), (None, &b""[..]));
    assert_eq!(
        (t.id("Ġw"), t.id("<|im_end|>"), t.id("<think>"), t.id("no")),
        (Some(260), Some(END), Some(THINK), None)
    );
    assert_eq!(
        (t.kind(0), t.kind(THINK), t.kind(END)),
        (TokenKind::Normal, TokenKind::UserDefined, TokenKind::Control)
    );
    assert_eq!((t.kind(266), t.kind(999)), (TokenKind::Unused, TokenKind::Unused));
}

#[test]
fn prompts_begin_with_bos_once() {
    let t = load(&tiny().meta("tokenizer.ggml.add_bos_token", true)).unwrap();
    assert_eq!(t.encode_prompt("hello", &[]).unwrap(), [TEXT_END, 259]);
    assert_eq!(t.encode_prompt("<|endoftext|>hello", &[]).unwrap(), [TEXT_END, 259]);
    assert_eq!(load(&tiny()).unwrap().encode_prompt("hello", &[]).unwrap(), [259]);
}

#[test]
fn content_cannot_forge_control_tokens() {
    let t = load(&tiny()).unwrap();
    let stand_ins = [('\u{e000}', "<|im_end|>".to_owned()), ('\u{e001}', "<|im_start|>".to_owned())];
    let ids = t.encode_prompt("<|im_start|>a\u{e000}\u{e001}b<|im_end|>", &stand_ins).unwrap();
    assert_eq!(t.decode(&ids, true), "<|im_start|>a<|im_end|><|im_start|>b<|im_end|>");
    let control: Vec<usize> = (0..ids.len()).filter(|&i| t.kind(ids[i]) == TokenKind::Control).collect();
    assert_eq!(control, [0, ids.len() - 1]);
}

#[test]
fn harmony_messages_end_without_ending_the_turn() {
    let texts = ["<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"];
    let t = load(
        &tiny()
            .meta(
                "tokenizer.ggml.tokens",
                (0..=255)
                    .map(|b| alphabet::letter(b).to_string())
                    .chain(texts.map(String::from))
                    .collect::<Strings>(),
            )
            .meta("tokenizer.ggml.token_type", [vec![1u32; 256], vec![3; 5]].concat())
            .meta("tokenizer.ggml.merges", Strings::default())
            .meta("tokenizer.ggml.bos_token_id", 0u32)
            .meta("tokenizer.ggml.eos_token_id", 257u32),
    )
    .unwrap();
    assert_eq!(t.ends_of_turn(), [257, 258]);
    assert_eq!(t.decode(&[259, 260, 256, 257], false), "<|start|><|channel|><|end|>");
}

#[test]
fn wrong_vocabularies() {
    fn check(writer: &Writer, expected: &str) {
        assert_eq!(load(writer).err().map(|e| e.to_string()).as_deref(), Some(expected));
    }
    check(&Writer::new(), "tiny.gguf has no metadata key tokenizer.ggml.model");
    check(
        &tiny().meta("tokenizer.ggml.model", "llama"),
        "tiny.gguf has a tokenizer of kind \"llama\" (SentencePiece); known is \"gpt2\" (byte-level BPE)",
    );
    check(
        &tiny().meta("tokenizer.ggml.pre", "nobody"),
        "tiny.gguf names the pre-tokenizer \"nobody\" (tokenizer.ggml.pre), which is not known; known are llama-bpe, llama3, \
         llama-v3, dbrx, glm4, qwen2, deepseek-r1-qwen, qwen35, gpt-4o, tekken, gpt-2",
    );
    check(
        &tiny().meta("tokenizer.ggml.token_type", vec![1u32; 3]),
        "tiny.gguf: tokenizer.ggml.token_type has 3 entries for 269 tokens",
    );
    check(
        &tiny().meta("tokenizer.ggml.token_type", vec![9u32; 269]),
        "tiny.gguf: token 0 has the unknown kind 9 in tokenizer.ggml.token_type",
    );
    check(
        &tiny().meta("tokenizer.ggml.eos_token_id", 269u32),
        "tiny.gguf: tokenizer.ggml.eos_token_id is 269, but there are 269 tokens",
    );
    check(
        &tiny().meta("tokenizer.ggml.merges", ["h e", "hello"].iter().collect::<Strings>()),
        "tiny.gguf: merge 1 of tokenizer.ggml.merges, \"hello\", is not two tokens with a space between",
    );
    check(
        &tiny().meta("tokenizer.ggml.merges", ["h x"].iter().collect::<Strings>()),
        "tiny.gguf: the vocabulary is inconsistent: Token `hx` out of vocabulary",
    );
    let one = tiny()
        .meta("tokenizer.ggml.tokens", ["x".repeat(2000)].iter().collect::<Strings>())
        .meta("tokenizer.ggml.token_type", vec![1u32]);
    check(&one, "tiny.gguf: token 0 has 2000 bytes; the most is 1024");
}

#[test]
fn text_that_the_vocabulary_lacks_is_an_error() {
    let t = load(
        &tiny()
            .meta("tokenizer.ggml.tokens", ["a", "</s>"].iter().collect::<Strings>())
            .meta("tokenizer.ggml.token_type", vec![1u32, 3])
            .meta("tokenizer.ggml.merges", Strings::default())
            .meta("tokenizer.ggml.bos_token_id", 1u32)
            .meta("tokenizer.ggml.eos_token_id", 1u32),
    )
    .unwrap();
    assert_eq!(t.encode("aa", false).unwrap(), [0, 0]);
    assert_eq!(
        t.encode("a a", false).unwrap_err().to_string(),
        "text can't be tokenized at byte 1: the vocabulary lacks bytes of \" a\""
    );
}

/// Nothing may be lost where an expression has to look far ahead.
#[test]
fn long_runs_are_split_whole() {
    for t in EVERY_RULE.iter() {
        for unit in [" ", "\n", "a", "A", "1", "!", " \n", "é", "\u{301}"] {
            let text = unit.repeat(20_000);
            assert_eq!(
                t.decode(&t.encode(&text, true).unwrap(), true),
                text,
                "{} {unit:?}",
                t.pre_tokenizer()
            );
        }
    }
}

/// The small vocabulary under each rule.
static EVERY_RULE: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let rules = pretokenizer::RULES.iter();
    rules.map(|rule| load(&tiny().meta("tokenizer.ggml.pre", rule.names[0])).unwrap()).collect()
});

#[test]
fn environment_for_grammars() {
    let t = load(&tiny()).unwrap();
    let env = t.env();
    assert_eq!(env.tokenize("hello<think> w"), [259, THINK, 260]);
    // A grammar's text never becomes a control token; a control token is reached by name.
    assert!(!env.tokenize("<|im_end|>").contains(&END));
    assert_eq!(env.tok_trie().get_special_token("<|im_end|>"), Some(END));
    assert_eq!(env.tok_trie().eos_tokens(), t.ends_of_turn());
    assert_eq!(env.tokenize_bytes(b"he\xff"), [256, 0xff]);
}

proptest! {
    #[test]
    fn every_text_comes_back(text in "\\PC*|[ \\t\\n\\ra-zA-Z0-9'<>|é你😀]{0,60}", special: bool) {
        for t in EVERY_RULE.iter() {
            let ids = t.encode(&text, special).unwrap();
            prop_assert_eq!(t.decode(&ids, true), text.as_str());
        }
    }

    #[test]
    fn streams_give_what_decode_gives(ids in prop::collection::vec(0u32..272, 0..40), special: bool) {
        let t = &EVERY_RULE[0];
        let mut stream = if special { t.stream().with_special() } else { t.stream() };
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        prop_assert_eq!(text, t.decode(&ids, special));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever a file claims, its vocabulary is refused or works, in grammars too.
    #[test]
    fn damaged_vocabularies_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        text in "[ a-z<|>é]{0,30}",
    ) {
        let mut bytes = tiny().bytes().unwrap();
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let gguf = Gguf::from_vec("damaged.gguf", bytes);
        if let Ok(tokenizer) = gguf.map_err(TokenizerError::from).and_then(|gguf| Tokenizer::from_gguf(&gguf)) {
            tokenizer.env().tokenize(&text);
            if let Ok(ids) = tokenizer.encode_prompt(&text, &[]) {
                tokenizer.decode(&ids, true);
            }
        }
    }
}

#[derive(Deserialize)]
struct Case {
    vocab: String,
    pre: Option<String>,
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

/// A vocabulary, perhaps with another splitting rule. `None` for those that the fixtures leave out or that are of another
/// kind than byte-level BPE.
fn vocabulary(dir: &std::path::Path, vocab: &str, pre: Option<&str>) -> Option<Tokenizer> {
    let (file, pre) = match vocab {
        // Differs from qwen2 in its label only, and is packed.
        "qwen35" => ("qwen2", Some("qwen35")),
        "gemma-4" | "llama-spm" => return None,
        other => (other, pre),
    };
    let gguf = Gguf::open(&dir.join(format!("vocabs/{file}.gguf"))).unwrap();
    let start = Instant::now();
    let tokenizer = match pre {
        None => Tokenizer::from_gguf(&gguf).unwrap(),
        Some(pre) => {
            let bytes = Writer::copy_of(&gguf).meta("tokenizer.ggml.pre", pre).bytes().unwrap();
            Tokenizer::from_gguf(&Gguf::from_vec(vocab, bytes).unwrap()).unwrap()
        }
    };
    let took = start.elapsed();
    println!("{vocab} {}: {} tokens in {took:?}", pre.unwrap_or_default(), tokenizer.len());
    assert!(took < Duration::from_secs(10), "{vocab} took {took:?}");
    Some(tokenizer)
}

#[test]
fn vectors_of_real_vocabularies() {
    let Some(dir) = fixtures() else { return };
    let mut tokenizers: HashMap<(String, Option<String>), Option<Tokenizer>> = HashMap::new();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut wrong = Vec::new();
    for file in ["vectors.jsonl", "hf_vectors.jsonl", "relabelled.jsonl"] {
        // Split at \n only: strings hold U+2028.
        for line in
            std::fs::read_to_string(dir.join(file)).unwrap().split('\n').filter(|line| !line.is_empty())
        {
            let case: Case = serde_json::from_str(line).unwrap();
            let key = (case.vocab.clone(), case.pre.clone());
            let tokenizer =
                tokenizers.entry(key).or_insert_with(|| vocabulary(&dir, &case.vocab, case.pre.as_deref()));
            let Some(t) = tokenizer else { continue };
            let mut ids = Vec::new();
            if case.add_special && t.add_bos() {
                ids.extend(t.bos());
            }
            ids.extend(t.encode(&case.text, case.parse_special).unwrap());
            let shown = case.pieces.as_deref().or(case.detok.as_deref());
            let bos = t
                .bos()
                .filter(|_| case.add_special && t.add_bos())
                .map_or("", |id| t.token_text(id).unwrap());
            let plain = match (&case.pieces, case.detok_plain.as_deref()) {
                (Some(pieces), _) => pieces.strip_prefix(bos),
                (None, plain) => plain.or(shown),
            };
            *counts.entry(file).or_default() += 1;
            if ids != case.ids
                || shown.is_some_and(|text| t.decode(&ids, true) != text)
                || plain.is_some_and(|text| t.decode(&ids, false) != text)
            {
                wrong.push(format!(
                    "{file} {line}\n   got {ids:?} {:?} {:?}",
                    t.decode(&ids, true),
                    t.decode(&ids, false)
                ));
            }
        }
    }
    println!("{counts:?}");
    assert_eq!(counts.values().sum::<usize>(), 388 * 4 + 47 * 3 + 51 + 212 * 4 + 160 * 2);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
}

#[test]
fn grammar_environment_of_a_real_vocabulary() {
    let Some(dir) = fixtures() else { return };
    let t = vocabulary(&dir, "qwen2", None).unwrap();
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
