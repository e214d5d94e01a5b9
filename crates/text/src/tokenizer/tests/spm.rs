//! SentencePiece's BPE on a small vocabulary.

use proptest::prelude::*;

use super::*;

const EOS: u32 = 1;
const BOS: u32 = 2;
const START: u32 = 4;
const STRIKE_END: u32 = 6;
const LINES: u32 = 7;
const SPACES: u32 = 8;
const BYTES: u32 = 9;
const SPACE: u32 = BYTES + 256;

/// Special pieces like Gemma's, all bytes, and a few trained pieces, those of more than one
/// character ordered by score.
pub(super) fn tiny() -> Writer {
    let mut pieces: Vec<(String, f32, u32)> = Vec::new();
    let mut add = |text: &str, score: f32, kind: u32| pieces.push((text.to_owned(), score, kind));
    for (text, kind) in
        [("<pad>", 3), ("<eos>", 3), ("<bos>", 3), ("<unk>", 2), ("<start_of_turn>", 3), ("<end_of_turn>", 3)]
    {
        add(text, 0.0, kind);
    }
    for text in ["</s>", "\n\n", "   "] {
        add(text, -1000.0, 4);
    }
    for byte in 0..=255 {
        add(&format!("<0x{byte:02X}>"), 0.0, 6);
    }
    for letter in ["▁", "h", "e", "l", "o", "w", "a", "b", "c", "d", "é", "<", "s", ">", "/"] {
        add(letter, -100.0, 1);
    }
    for (rank, text) in ["▁w", "he", "ll", "llo", "hello", "▁hello", "bc", "ab", "aa"].iter().enumerate()
    {
        add(text, -(rank as f32), 1);
    }
    Writer::new()
        .meta("tokenizer.ggml.model", "llama")
        .meta("tokenizer.ggml.pre", "default")
        .meta("tokenizer.ggml.tokens", pieces.iter().map(|piece| &piece.0).collect::<Strings>())
        .meta("tokenizer.ggml.scores", pieces.iter().map(|piece| piece.1).collect::<Vec<_>>())
        .meta("tokenizer.ggml.token_type", pieces.iter().map(|piece| piece.2).collect::<Vec<_>>())
        .meta("tokenizer.ggml.bos_token_id", BOS)
        .meta("tokenizer.ggml.eos_token_id", EOS)
}

/// With Gemma's options.
fn gemma() -> Writer {
    tiny().meta("tokenizer.ggml.add_space_prefix", false)
}

#[test]
fn merges_by_score() {
    let t = load(&gemma()).unwrap();
    let check = |text: &str, expected: &[&str]| {
        let ids = t.encode(text, false).unwrap();
        let written: Vec<&str> = ids.iter().map(|&id| t.token_text(id).unwrap()).collect();
        assert_eq!(written, expected, "{text:?}");
        assert_eq!(t.decode(&ids, false), text);
    };
    check("", &[]);
    check("hello", &["hello"]);
    check(" hello w", &["▁hello", "▁w"]);
    // The better pair first, wherever it is; the leftmost of equal ones.
    check("abc", &["a", "bc"]);
    check("aaa", &["aa", "a"]);
    check("aaaaa", &["aa", "aa", "a"]);
    // Characters without a piece become bytes; text that looks like a byte token does not.
    check("é😀x", &["é", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0x78>"]);
    check("<0x41>", &["<", "<0x30>", "<0x78>", "<0x34>", "<0x31>", ">"]);
    // User-defined pieces are matched first, the longest of several.
    check("a     h", &["a", "   ", "▁", "▁", "h"]);
    check("\n\n\n", &["\n\n", "<0x0A>"]);
    check("<s></s>", &["<", "s", ">", "</s>"]);
    // Control pieces are not.
    check("<eos>", &["<", "e", "o", "s", ">"]);
}

#[test]
fn special_tokens() {
    let t = load(&gemma()).unwrap();
    assert_eq!((t.len(), t.bos(), t.eos(), t.add_bos()), (289, Some(BOS), Some(EOS), true));
    // `</s>` is an HTML tag here.
    assert_eq!(t.ends_of_turn(), [EOS, 5]);
    assert_eq!(t.pre_tokenizer(), None);
    assert_eq!(t.encode_prompt("<bos>a", &[]).unwrap(), t.encode_prompt("a", &[]).unwrap());
    assert_eq!(t.encode_prompt("a", &[]).unwrap()[0], BOS);
    assert_eq!(t.id("▁hello"), t.encode(" hello", false).unwrap().first().copied());
    assert_eq!((t.id("<start_of_turn>"), t.id("no"), t.id("</s>")), (Some(START), None, Some(STRIKE_END)));
    assert_eq!((t.token_bytes(SPACE), t.token_bytes(SPACES)), (&b" "[..], &b"   "[..]));
    assert_eq!((t.token_bytes(BYTES + 0xff), t.token_bytes(LINES)), (&b"\xff"[..], &b"\n\n"[..]));
    assert!(t.control_texts().eq(["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]));

    let placeholders = [('\u{e000}', "<end_of_turn>".to_owned())];
    let ids = t.encode_prompt("<start_of_turn>a\u{e000}<end_of_turn>", &placeholders).unwrap();
    assert_eq!(t.decode(&ids, true), "<bos><start_of_turn>a<end_of_turn><end_of_turn>");
    let control: Vec<usize> = (0..ids.len()).filter(|&i| t.kind(ids[i]) == TokenKind::Control).collect();
    assert_eq!(control, [0, 1, ids.len() - 1]);
}

/// Llama 2 and Mistral add a space before each text, Gemma doesn't.
#[test]
fn a_space_before_text() {
    let t = load(&tiny()).unwrap();
    let ids = t.encode("hello", false).unwrap();
    assert_eq!(ids, [t.id("▁hello").unwrap()]);
    assert_eq!(t.decode(&ids, false), "hello");
    assert_eq!(t.decode(&[&[BOS][..], &ids].concat(), false), " hello");
    // After special tokens too.
    let ids = t.encode("<start_of_turn>hello", true).unwrap();
    assert_eq!(ids, [START, t.id("▁hello").unwrap()]);
    assert!(t.encode("", true).unwrap().is_empty());
    let mut stream = t.stream();
    let space = t.id("▁w").unwrap();
    assert_eq!([stream.push(space), stream.push(space)], ["w", " w"]);
    // Text forced by a grammar continues at the model's position.
    assert_eq!(t.env().tokenize("hello"), [t.id("hello").unwrap()]);

    let facts = TokenizerFacts { space_prefix: Some(false), ..TokenizerFacts::default() };
    let file = Gguf::from_vec("tiny.gguf", tiny().bytes().unwrap()).unwrap();
    let t = Tokenizer::with_facts(&file, &facts).unwrap();
    assert_eq!(t.encode("hello", false).unwrap(), [t.id("hello").unwrap()]);
}

#[test]
fn a_character_comes_with_its_last_byte() {
    let t = load(&gemma()).unwrap();
    let mut stream = t.stream();
    let pieces: Vec<String> = t.encode("a😀é", false).unwrap().iter().map(|&id| stream.push(id)).collect();
    assert_eq!(pieces, ["a", "", "", "", "😀", "é"]);
    assert_eq!(stream.push(BYTES + 0xf0), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn without_byte_pieces_a_missing_character_is_an_error() {
    let t = load(
        &Writer::new()
            .meta("tokenizer.ggml.model", "llama")
            .meta("tokenizer.ggml.tokens", ["▁a", "</s>", "▁", "a"].iter().collect::<Strings>())
            .meta("tokenizer.ggml.token_type", vec![1u32, 3, 1, 1])
            .meta("tokenizer.ggml.scores", vec![-1f32, 0.0, -2.0, -3.0])
            .meta("tokenizer.ggml.eos_token_id", 1u32),
    )
    .unwrap();
    assert_eq!(t.encode("a a", false).unwrap(), [0, 0]);
    assert_eq!(
        t.encode("a ab", false).unwrap_err().to_string(),
        "text can't be tokenized at byte 3: the vocabulary lacks \"b\" and the byte <0x62>"
    );
}

/// Uses a heap rather than a search of the whole text for each merge.
#[test]
fn long_runs_take_little_longer_than_short_ones() {
    let t = load(&gemma()).unwrap();
    for unit in ["a", " ", "hello ", "bc", "x", "<", "\n"] {
        let text = unit.repeat(100_000);
        let start = Instant::now();
        assert_eq!(t.round_trip(&text).unwrap(), text);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "{unit:?} took {took:?}");
    }
}

proptest! {
    #[test]
    fn every_text_comes_back(text in "[^▁]*|[ \\n\\ta-e</>hlosw😀é]{0,60}") {
        let t = load(&gemma()).unwrap();
        prop_assert_eq!(t.round_trip(&text).unwrap(), text.as_str());
        // Without user-defined pieces, the text only has one extra space, which decoding removes.
        let t = load(&tiny()).unwrap();
        let ids = t.encode(&text, false).unwrap();
        if ids.iter().all(|&id| t.kind(id) != TokenKind::UserDefined) {
            prop_assert_eq!(t.decode(&ids, false), text);
        }
    }

    #[test]
    fn no_text_becomes_a_control_token(
        texts in prop::collection::vec(prop::sample::select(vec![
            "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<", "eos>", "▁", " ", "<0x00>", "a", "</s>",
        ]), 0..12),
    ) {
        for t in [load(&gemma()).unwrap(), load(&tiny()).unwrap()] {
            for id in t.encode(&texts.concat(), false).unwrap() {
                let kind = t.kind(id);
                prop_assert!(matches!(kind, TokenKind::Normal | TokenKind::Byte | TokenKind::UserDefined), "{kind:?}");
            }
        }
    }
}
