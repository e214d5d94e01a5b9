//! BPE with merges over pieces as text, as in Gemma 4, on a small vocabulary.

use proptest::prelude::*;

use super::*;

/// The pieces of [`spm::tiny`] without their scores, and merges that lead to some of them.
fn gemma() -> Writer {
    let merges = ["h e", "l l", "ll o", "he llo", "▁ hello", "▁ w", "a a"];
    spm::tiny()
        .meta("tokenizer.ggml.model", "gemma4")
        .meta("tokenizer.ggml.scores", vec![-1000f32; 289])
        .meta("tokenizer.ggml.merges", merges.iter().collect::<Strings>())
        .meta("tokenizer.ggml.add_bos_token", false)
}

/// That file with a named rule.
fn named(pre: &str) -> Tokenizer {
    load(&gemma().meta("tokenizer.ggml.model", "gpt2").meta("tokenizer.ggml.pre", pre)).unwrap()
}

#[track_caller]
fn check(t: &Tokenizer, text: &str, expected: &[&str]) {
    let ids = t.encode(text, false).unwrap();
    let written: Vec<&str> = ids.iter().map(|&id| t.token_text(id).unwrap()).collect();
    assert_eq!(written, expected, "{text:?}");
}

#[test]
fn pieces_are_merged_within_lines() {
    let t = load(&gemma()).unwrap();
    for t in [&t, &named("granite-embed-multi-311m"), &named("sarvam-moe")] {
        check(t, "hello w", &["hello", "▁w"]);
        check(t, " hello  h", &["▁hello", "▁", "▁", "h"]);
        // No merge leads to these.
        check(t, "abc", &["a", "b", "c"]);
        // Characters without a piece become bytes; text that looks like a byte token does not.
        check(t, "é😀x", &["é", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0x78>"]);
        check(t, "<0x41>", &["<", "<0x30>", "<0x78>", "<0x34>", "<0x31>", ">"]);
        // User-defined pieces are matched first; control pieces are not.
        check(t, "a     h", &["a", "   ", "▁", "▁", "h"]);
        check(t, "<s></s>", &["<", "s", ">", "</s>"]);
        check(t, "he\nllo", &["he", "<0x0A>", "llo"]);
    }
    assert_eq!(
        (t.pre_tokenizer(), t.add_bos(), named("sarvam-moe").add_bos()),
        (Some("gemma4"), true, false)
    );
    assert_eq!(t.token_bytes(t.id("▁hello").unwrap()), b" hello");
}

/// Gemma 4 has runs of line feeds as pieces that no merges produce.
#[test]
fn a_run_of_lines_is_a_piece() {
    let lines = |t: &Tokenizer| t.encode("a\n\n\nb", false).unwrap().len();
    let mut texts: Vec<String> = Gguf::from_vec("tiny.gguf", gemma().bytes().unwrap())
        .unwrap()
        .metadata()
        .strings("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap()
        .iter()
        .map(str::to_owned)
        .collect();
    let last = texts.len() - 1;
    texts[last] = "\n\n\n".to_owned();
    texts[7] = "unused".to_owned();
    let merges: Strings = ["h e"].iter().collect();
    let with = gemma().meta("tokenizer.ggml.tokens", texts.iter().collect::<Strings>());
    let with = with.meta("tokenizer.ggml.merges", merges);
    assert_eq!(lines(&load(&with).unwrap()), 3);
    let with = with.meta("tokenizer.ggml.model", "gpt2").meta("tokenizer.ggml.pre", "sarvam-moe");
    assert_eq!(lines(&load(&with).unwrap()), 5);
}

#[test]
fn words_without_the_blanks_between() {
    let t =
        load(&gemma().meta("tokenizer.ggml.model", "whitespace").meta("tokenizer.ggml.pre", "whitespace"));
    check(&t.unwrap(), " he  llo\ta ", &["he", "llo", "a"]);
}

#[test]
fn grammars_reach_pieces() {
    let t = load(&gemma()).unwrap();
    let env = t.env();
    assert_eq!(env.tokenize("hello w"), t.encode("hello w", false).unwrap());
    assert!(!env.tokenize("<eos>").contains(&1));
    assert_eq!(env.tok_trie().get_special_token("<eos>"), Some(1));
}

#[test]
fn long_lines_take_little_longer_than_short_ones() {
    let t = load(&gemma()).unwrap();
    for unit in ["a", " ", "hello ", "\n", "x"] {
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
        for t in [load(&gemma()).unwrap(), named("sarvam-moe")] {
            prop_assert_eq!(t.round_trip(&text).unwrap(), text.as_str());
        }
    }
}
