//! Small vocabularies; [`vectors`] tests those of real models.

mod kinds;
mod malformed;
mod pieces;
mod spm;
mod vectors;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::pretokenizer::Rule;
use super::vocabulary::Spelling;
use super::*;
use crate::gguf::{Strings, Value, Writer};

/// All bytes, a few merges, and special tokens of every kind: the id of a byte equals the byte.
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

impl Tokenizer {
    /// The tokenizer of a file, with the facts of its architecture.
    pub(crate) fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, TokenizerError> {
        #[derive(Default, serde::Deserialize)]
        struct Facts {
            #[serde(default)]
            tokenizer: TokenizerFacts,
        }
        let name = gguf.metadata().str("general.architecture").ok().flatten().unwrap_or_default();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/architectures");
        let file = std::fs::read_to_string(format!("{folder}/{name}.yaml"));
        let facts: Facts = file.map(|text| serde_saphyr::from_str(&text).unwrap()).unwrap_or_default();
        Tokenizer::with_facts(gguf, &facts.tokenizer)
    }
}

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
    // Control tokens only on request, user-defined ones always, the longer of two.
    check("<think><|x", false, &[THINK, 60, 124, 120]);
    check("<think>>", false, &[264]);
    assert_eq!(t.encode("<|im_end|>", false).unwrap().len(), "<|im_end|>".len());
    assert_eq!(t.decode(&[START, 259, THINK, END, 999], false), "hello<think>");
}

#[test]
fn knows_its_tokens() {
    let t = load(&tiny()).unwrap();
    assert_eq!((t.len(), t.bos(), t.eos(), t.add_bos()), (269, Some(TEXT_END), Some(END), false));
    // Of two tokens with the same text the first wins; both end a text.
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
    let placeholders = [('\u{e000}', "<|im_end|>".to_owned()), ('\u{e001}', "<|im_start|>".to_owned())];
    let ids = t.encode_prompt("<|im_start|>a\u{e000}\u{e001}b<|im_end|>", &placeholders).unwrap();
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

/// Rules for files that name none.
#[test]
fn unnamed_rules() {
    #[track_caller]
    fn check(writer: &Writer, facts: &TokenizerFacts, expected: Result<&str, &str>) {
        let gguf = Gguf::from_vec("tiny.gguf", writer.bytes().unwrap()).unwrap();
        let rule = Tokenizer::with_facts(&gguf, facts).map(|t| t.pre_tokenizer().unwrap().to_owned());
        assert_eq!(rule.map_err(|e| e.to_string()), expected.map(String::from).map_err(String::from));
    }
    let none = TokenizerFacts::default();
    let facts = TokenizerFacts { pre: Some("gpt-4o".into()), ..none.clone() };
    let default = tiny().meta("tokenizer.ggml.pre", "default");
    check(&default, &facts, Ok("gpt-4o"));
    check(&tiny(), &facts, Ok("qwen2"));
    check(&default, &TokenizerFacts { tokens: Some(269), ..facts.clone() }, Ok("gpt-4o"));
    let refused = "tiny.gguf does not say how its tokenizer splits text (tokenizer.ggml.pre is \"default\"): convert the model \
                   again, or name the rule in its architecture file";
    check(&default, &none, Err(refused));
    check(&default, &TokenizerFacts { tokens: Some(128_256), ..facts }, Err(refused));
}

/// Rows without tokens, tokens without rows, and rows whose token was made up by a converter.
#[test]
fn tokens_and_rows() {
    let embedding = |rows: u64| {
        let data = vec![0u8; rows as usize * 4];
        tiny().tensor("token_embd.weight", &[1, rows], crate::gguf::TensorType::F32, data)
    };
    let mut logits = vec![0.0; 300];
    let t = load(&embedding(300)).unwrap();
    for endless in [false, true] {
        t.mask(&mut logits, endless);
        let candidates: Vec<usize> = (0..300).filter(|&id| logits[id] == 0.0).collect();
        let end = |id: &usize| endless && t.is_end_of_turn(*id as u32);
        assert_eq!(candidates, (0..266).chain([267]).filter(|id| !end(id)).collect::<Vec<_>>());
        let bit = |id: &usize| t.candidates(endless)[id / 32] >> (id % 32) & 1 == 1;
        assert_eq!(candidates, (0..t.len()).filter(bit).collect::<Vec<_>>());
    }

    // Lists are truncated to the rows of the embedding.
    let t = load(&embedding(266)).unwrap();
    assert_eq!((t.len(), t.encode("<|endoftext|>", true).unwrap()), (266, vec![TEXT_END]));
    assert_eq!(load(&embedding(263)).unwrap().bos(), None);

    let mut tokens: Vec<String> = (0..=255).map(|b| alphabet::letter(b).to_string()).collect();
    tokens.extend(["<|im_end|>", "[PAD257]", "[PAD99]"].map(String::from));
    let t = load(
        &tiny()
            .meta("tokenizer.ggml.tokens", tokens.iter().collect::<Strings>())
            .meta("tokenizer.ggml.token_type", [vec![1u32; 256], vec![3, 4, 4]].concat())
            .meta("tokenizer.ggml.merges", Strings::default())
            .meta("tokenizer.ggml.bos_token_id", 0u32)
            .meta("tokenizer.ggml.eos_token_id", 256u32),
    )
    .unwrap();
    assert_eq!((t.kind(257), t.kind(258)), (TokenKind::Unused, TokenKind::UserDefined));
    assert_eq!(t.encode("[PAD257]", true).unwrap().len(), 8);
}

/// The content of a prompt can't become a mark that is a user-defined token, but the template's own
/// marks do.
#[test]
fn placeholders_keep_marks_apart() {
    let mut tokens: Vec<String> = (0..=255).map(|b| alphabet::letter(b).to_string()).collect();
    tokens.extend(["<|im_end|>", "</t>", "ĠĠ", "if", "</"].map(String::from));
    let t = load(
        &tiny()
            .meta("tokenizer.ggml.tokens", tokens.iter().collect::<Strings>())
            .meta("tokenizer.ggml.token_type", [vec![1u32; 256], vec![3, 4, 4, 4, 4]].concat())
            .meta("tokenizer.ggml.merges", Strings::default())
            .meta("tokenizer.ggml.bos_token_id", 0u32)
            .meta("tokenizer.ggml.eos_token_id", 256u32),
    )
    .unwrap();
    assert_eq!(t.marks().collect::<Vec<_>>(), ["</t>"]);
    let placeholders = [('\u{e000}', "</t>".to_owned()), ('\u{e001}', "<".to_owned())];
    let encoded = |text: &str| t.encode_prompt(text, &placeholders).unwrap();
    let plain: Vec<u32> = "</t>".bytes().map(|byte| encoded(&char::from(byte).to_string())[0]).collect();
    assert_eq!(encoded("</t>"), [257]);
    assert_eq!(encoded("\u{e000}"), plain);
    assert_eq!(encoded("if\u{e000}if</t>"), [&[259], &plain[..], &[259, 257]].concat());
    // Content and template text together don't form such a token either.
    assert_eq!(encoded("\u{e001}/t>"), plain);
}

#[test]
fn fingerprints_tell_tokenizers_apart() {
    let print = |writer: &Writer| load(writer).unwrap().fingerprint();
    assert_eq!(print(&tiny()), print(&tiny().meta("general.name", "other")));
    let merges = ["h e", "l l", "ll o", "he llo"].iter().collect::<Strings>();
    let others = [
        tiny(),
        tiny().meta("tokenizer.ggml.merges", merges),
        tiny().meta("tokenizer.ggml.pre", "qwen35"),
        tiny().meta("tokenizer.ggml.token_type", vec![1u32; 269]),
        spm::tiny(),
        spm::tiny().meta("tokenizer.ggml.add_space_prefix", false),
        spm::tiny().meta("tokenizer.ggml.scores", vec![0f32; 289]),
    ];
    let prints: std::collections::HashSet<_> = others.iter().map(print).collect();
    assert_eq!(prints.len(), others.len());
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

/// Nothing is lost if an expression has to look far ahead, and time grows little faster than the
/// text.
#[test]
fn long_runs_are_split_whole() {
    for t in EVERY_RULE.iter() {
        for unit in [" ", "\n", "a", "A", "1", "!", " \n", "é", "\u{301}", "aA", "<"] {
            let text = unit.repeat(100_000);
            let start = Instant::now();
            assert_eq!(t.round_trip(&text).unwrap(), text, "{:?} {unit:?}", t.pre_tokenizer());
            let took = start.elapsed();
            assert!(took < Duration::from_secs(10), "{:?} {unit:?} took {took:?}", t.pre_tokenizer());
        }
    }
}

/// The small vocabulary with each rule for vocabularies of its kind.
static EVERY_RULE: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let rules = pretokenizer::rules().unwrap().iter().filter(|rule| rule.spelling == Spelling::Bytes);
    let facts =
        |rule: &Rule| TokenizerFacts { pre: Some(rule.names[0].clone()), ..TokenizerFacts::default() };
    let gguf =
        Gguf::from_vec("tiny.gguf", tiny().meta("tokenizer.ggml.pre", "default").bytes().unwrap()).unwrap();
    rules.map(|rule| Tokenizer::with_facts(&gguf, &facts(rule)).unwrap()).collect()
});

#[test]
fn environment_for_grammars() {
    let t = load(&tiny()).unwrap();
    let env = t.env();
    assert_eq!(env.tokenize("hello<think> w"), [259, THINK, 260]);
    // A grammar's text never becomes a control token, which is reached by name only.
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
    fn no_text_becomes_a_control_token(
        texts in prop::collection::vec(prop::sample::select(vec![
            "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<unused>", "<|im_", "end|>", "<", "|>", "a", " ", "<think>",
        ]), 0..12),
        placeholder: bool,
    ) {
        let control = |id: &u32| matches!(EVERY_RULE[0].kind(*id), TokenKind::Control | TokenKind::Unused);
        for t in EVERY_RULE.iter() {
            let ids = if placeholder {
                t.encode_prompt("\u{e000}", &[('\u{e000}', texts.concat())]).unwrap().split_off(usize::from(t.add_bos()))
            } else {
                t.encode(&texts.concat(), false).unwrap()
            };
            prop_assert!(!ids.iter().any(control), "{ids:?}");
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

#[test]
fn a_special_token_that_is_out_of_range_is_told_and_left_aside() {
    let t = load(&tiny()).unwrap();
    assert_eq!((t.note(), t.bos()), (None, Some(265)));
    for (id, shown) in
        [(Value::U32(269), "269"), (Value::U32(u32::MAX), "4294967295"), (Value::I32(-1), "-1")]
    {
        let writer = tiny()
            .meta("tokenizer.ggml.bos_token_id", id.clone())
            .meta("tokenizer.ggml.padding_token_id", id.clone())
            .meta("tokenizer.ggml.eos_token_ids", vec![262u32, 269]);
        let t = load(&writer).unwrap();
        let expected = format!(
            "tiny.gguf: tokenizer.ggml.bos_token_id is {shown}, tokenizer.ggml.padding_token_id is {shown}, \
             tokenizer.ggml.eos_token_ids has 269, but there are 269 tokens: left aside"
        );
        assert_eq!(t.note(), Some(expected.as_str()));
        assert_eq!(t.bos(), None);
        // Another key names the end.
        assert!(t.is_end_of_turn(262));
        let t = load(&tiny().meta("tokenizer.ggml.eos_token_id", id)).unwrap();
        assert!(t.note().is_some() && t.eos().is_none() && t.is_end_of_turn(TEXT_END));
    }
}

/// Each kind checks in its loop whether the request has ended.
#[test]
fn encoding_ends_with_its_request() {
    let t = load(&tiny()).unwrap();
    let late = Instant::now() + Duration::from_millis(100);
    let until = Until { deadline: Some(late), ..Until::default() };
    for text in ["1 ".repeat(8 << 20), "a b\n".repeat(4 << 20)] {
        let begun = Instant::now();
        let encoded = t.until(&until).encode(&text, true);
        assert!(matches!(encoded, Err(TokenizerError::Over(_))), "{:?}", encoded.map(|ids| ids.len()));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    let gone = Until { cancelled: Some(Arc::new(true.into())), ..Until::default() };
    assert!(matches!(t.until(&gone).encode("one two", false), Err(TokenizerError::Over(_))));
    assert!(t.until(&Until::default()).encode("one two", false).is_ok());
}

/// Words longer than any real one are refused, since merging can't be interrupted within one.
#[test]
fn endless_words_are_refused() {
    let t = load(&tiny()).unwrap();
    for text in ["a", " "] {
        let begun = Instant::now();
        let encoded = t.encode(&text.repeat(7 << 20), false);
        assert!(matches!(encoded, Err(TokenizerError::Text { .. })), "{text:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}
