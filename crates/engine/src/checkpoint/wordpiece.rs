//! Converts BERT's `tokenizer.json` to the metadata of a GGUF file.
//! Format: <https://huggingface.co/docs/tokenizers/components>.

use std::collections::BTreeSet;

use alara_text::gguf::{Strings, Value};
use serde_json::Value as Json;

/// `tokenizer.ggml.token_type`: an ordinary token, a control token.
const NORMAL: u32 = 1;
const CONTROL: u32 = 3;
/// The prefix of a piece that continues a word.
const GOES_ON: &str = "##";
/// The prefix in GGUF files of a piece that begins a word.
const BEGINS: &str = "▁";
/// The template of special tokens around a text.
const AROUND: [&str; 3] = ["[CLS]", "A", "[SEP]"];

/// The tokenizer's metadata; the error names an unsupported setting.
pub fn metadata(tokenizer: &Json) -> Result<Vec<(String, Value)>, String> {
    let at = |path: &str| tokenizer.pointer(path).unwrap_or(&Json::Null);
    let expect = |path: &str, expected: Json| match at(path) {
        found if *found == expected => Ok(()),
        found => {
            Err(format!("`{}` {found} (known: {expected})", path.trim_start_matches('/').replace('/', ".")))
        }
    };
    expect("/model/type", "WordPiece".into())?;
    expect("/model/continuing_subword_prefix", GOES_ON.into())?;
    expect("/model/max_input_chars_per_word", 100.into())?;
    expect("/normalizer/type", "BertNormalizer".into())?;
    expect("/normalizer/clean_text", true.into())?;
    expect("/normalizer/handle_chinese_chars", true.into())?;
    expect("/pre_tokenizer/type", "BertPreTokenizer".into())?;
    if at("/post_processor/type") != "BertProcessing" {
        expect("/post_processor/type", "TemplateProcessing".into())?;
        let parts = at("/post_processor/single").as_array().cloned().unwrap_or_default();
        let name = |part: &Json| {
            let part = part.get("SpecialToken").or_else(|| part.get("Sequence"));
            part.and_then(|part| part.get("id")?.as_str().map(str::to_owned))
        };
        if parts.iter().map(name).ne(AROUND.map(|name| Some(name.to_owned()))) {
            let found = at("/post_processor/single");
            return Err(format!("`post_processor.single` {found} (known: {})", AROUND.join(", ")));
        }
    }
    let mut pieces = Vec::new();
    for (piece, id) in at("/model/vocab").as_object().into_iter().flatten() {
        pieces.push((id.as_u64().ok_or_else(|| format!("`model.vocab` with the id {id}"))?, piece.as_str()));
    }
    pieces.sort_unstable();
    if pieces.iter().map(|piece| piece.0).ne(0..pieces.len() as u64) {
        return Err("`model.vocab` whose ids are not counted from 0".to_owned());
    }
    let added = at("/added_tokens").as_array().map(Vec::as_slice).unwrap_or_default();
    let control: BTreeSet<&str> = added.iter().filter_map(|token| token.get("content")?.as_str()).collect();
    let id = |piece: &str| {
        let found = pieces.iter().find(|(_, other)| *other == piece);
        found.map(|(id, _)| Value::U64(*id)).ok_or_else(|| format!("`model.vocab` without {piece}"))
    };
    if let Some(piece) = control.iter().find(|piece| id(piece).is_err()) {
        return Err(format!("`added_tokens` with {}, which `model.vocab` lacks", piece.escape_debug()));
    }
    let text = |(_, piece): &(u64, &str)| match piece.strip_prefix(GOES_ON) {
        _ if control.contains(piece) => (*piece).to_owned(),
        Some(rest) => rest.to_owned(),
        None => format!("{BEGINS}{piece}"),
    };
    let kind = |(_, piece): &(u64, &str)| if control.contains(piece) { CONTROL } else { NORMAL };
    let unknown = at("/model/unk_token").as_str().unwrap_or("[UNK]");
    let lowercase = at("/normalizer/lowercase").as_bool().unwrap_or(true);
    let mut keys = vec![
        ("model", "bert".into()),
        ("tokens", pieces.iter().map(text).collect::<Strings>().into()),
        ("token_type", pieces.iter().map(kind).collect::<Vec<u32>>().into()),
        ("cls_token_id", id(AROUND[0])?),
        ("seperator_token_id", id(AROUND[2])?),
        ("unknown_token_id", id(unknown)?),
        ("normalizer.lowercase", lowercase.into()),
    ];
    if let Some(strips) = at("/normalizer/strip_accents").as_bool() {
        keys.push(("normalizer.strip_accents", strips.into()));
    }
    Ok(keys.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect())
}
