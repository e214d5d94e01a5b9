//! Files whose vocabulary is damaged or inconsistent.

use super::*;

#[test]
fn wrong_vocabularies() {
    fn check(writer: &Writer, expected: &str) {
        assert_eq!(load(writer).err().map(|e| e.to_string()).as_deref(), Some(expected));
    }
    check(&Writer::new(), "tiny.gguf has no metadata key tokenizer.ggml.model");
    let error = load(&tiny().meta("tokenizer.ggml.model", "hybriddna")).unwrap_err().to_string();
    assert_eq!(
        error,
        "tiny.gguf has a tokenizer of kind \"hybriddna\" (tokenizer.ggml.model), which is not built (built: gpt2, llama, \
         bert, t5, rwkv, plamo2, gemma4)"
    );
    check(
        &tiny().meta("tokenizer.ggml.tokens", Strings::default()),
        "tiny.gguf: the vocabulary is empty (tokenizer.ggml.tokens)",
    );
    check(
        &tiny().meta("tokenizer.ggml.model", "llama"),
        "tiny.gguf has no metadata key tokenizer.ggml.scores",
    );
    check(
        &spm::tiny().meta("tokenizer.ggml.scores", vec![0f32; 7]),
        "tiny.gguf: tokenizer.ggml.scores has 7 entries for 289 tokens",
    );
    check(
        &spm::tiny().meta("tokenizer.ggml.scores", vec![f32::NAN; 289]),
        "tiny.gguf: the score of token 0 (tokenizer.ggml.scores) is not a number",
    );
    let unknown = |pre: &str, hint: &str| {
        let expected = format!(
            "tiny.gguf names the pre-tokenizer \"{pre}\" (tokenizer.ggml.pre), which is not among the 91 known ones{hint}"
        );
        check(&tiny().meta("tokenizer.ggml.pre", pre), &expected);
    };
    unknown("nobody-knows", "");
    unknown("smollm3", ", did you mean \"smollm\"?");
    check(
        &tiny().meta("tokenizer.ggml.token_type", vec![1u32; 3]),
        "tiny.gguf: tokenizer.ggml.token_type has 3 entries for 269 tokens",
    );
    check(
        &tiny().meta("tokenizer.ggml.token_type", vec![9u32; 269]),
        "tiny.gguf: token 0 has the unknown kind 9 in tokenizer.ggml.token_type",
    );
    check(
        &tiny().meta("tokenizer.ggml.merges", ["h e", "hello"].iter().collect::<Strings>()),
        "tiny.gguf: merge 1 of tokenizer.ggml.merges, \"hello\", is not two tokens with a space between",
    );
    check(
        &tiny().meta("tokenizer.ggml.merges", ["h x"].iter().collect::<Strings>()),
        "tiny.gguf: merge 0 of tokenizer.ggml.merges, \"h x\", names \"hx\", which is no token",
    );
    check(
        &tiny().meta("tokenizer.ggml.merges", ["h 你"].iter().collect::<Strings>()),
        "tiny.gguf: merge 0 of tokenizer.ggml.merges, \"h 你\", names \"你\", which is no token",
    );
    let one = tiny()
        .meta("tokenizer.ggml.tokens", ["x".repeat(2000)].iter().collect::<Strings>())
        .meta("tokenizer.ggml.token_type", vec![1u32]);
    check(&one, "tiny.gguf: token 0 has 2000 bytes; the most is 1024");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Any vocabulary, whatever the file claims, is either refused or works, in grammars too.
    /// Covers all kinds of tokenizers.
    #[test]
    fn damaged_vocabularies_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        text in "[ a-z<|>é]{0,30}",
        model in prop::sample::select(vec!["gpt2", "gemma4", "llama", "bert", "t5", "rwkv", "plamo2"]),
    ) {
        let writer = if model == "gpt2" { tiny() } else { spm::tiny().meta("tokenizer.ggml.model", model) };
        let writer = if model == "gemma4" { writer.meta("tokenizer.ggml.merges", Strings::default()) } else { writer };
        let mut bytes = writer.bytes().unwrap();
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
