//! A tiny encoder from the fixtures, written as a checkpoint.

use std::fs;

use alara_text::gguf::TensorType;
use serde_json::json;

use super::*;
use crate::engine::{EmbedInput, Engine, Options};

fn fixture() -> Gguf {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/embedding/bert.gguf");
    Gguf::open(Path::new(path)).unwrap()
}

fn write(folder: &Path, file: &str, text: &Json) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text.to_string()).unwrap();
}

/// Writes the fixture's model to the folder as a checkpoint.
fn checkpoint(folder: &Path) {
    let gguf = fixture();
    let (_, facts) = CheckpointFacts::of("bert").unwrap().unwrap();
    let back = CheckpointFacts {
        tensors: facts.tensors.iter().map(|(own, name)| (name.clone(), own.clone())).collect(),
        ..facts.clone()
    };
    let (mut table, mut data) = (serde_json::Map::new(), Vec::new());
    for info in gguf.tensors() {
        assert_eq!(info.kind, TensorType::F32);
        let shape: Vec<u64> = info.shape.iter().rev().copied().collect();
        let start = data.len();
        data.extend_from_slice(&gguf.data(info));
        let about = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        table.insert(back.tensor(&info.name).unwrap(), about);
    }
    table.insert("__metadata__".into(), json!({"format": "pt"}));
    table.insert(
        "embeddings.position_ids".into(),
        json!({"dtype": "I64", "shape": [1, 0], "data_offsets": [0, 0]}),
    );
    let table = Json::Object(table).to_string();
    let mut bytes = (table.len() as u64).to_le_bytes().to_vec();
    bytes.extend(table.as_bytes());
    bytes.extend(data);
    fs::write(folder.join(WEIGHTS), bytes).unwrap();

    let metadata = gguf.metadata();
    let mut config = json!({"model_type": "bert", "hidden_act": "gelu", "vocab_size": 1});
    for (own, name) in &facts.keys {
        let key = format!("bert.{name}");
        config[own] = match metadata.u64(&key) {
            Ok(number) => json!(number.unwrap()),
            Err(_) => json!(metadata.f32(&key).unwrap().unwrap()),
        };
    }
    write(folder, "config.json", &config);

    let texts = metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    let special = |text: &str| text.starts_with('[') && text.ends_with(']');
    let own = |text: &str| match text.strip_prefix('\u{2581}') {
        Some(rest) => rest.to_owned(),
        None if special(text) => text.to_owned(),
        None => format!("##{text}"),
    };
    let vocab: serde_json::Map<String, Json> =
        texts.iter().enumerate().map(|(id, text)| (own(text), json!(id))).collect();
    assert_eq!(vocab.len(), texts.len());
    let added: Vec<Json> =
        texts.iter().filter(|text| special(text)).map(|text| json!({"content": text})).collect();
    let single = json!([{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "[SEP]"}}]);
    let tokenizer = json!({
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab},
    });
    write(folder, "tokenizer.json", &tokenizer);
    write(folder, "modules.json", &json!([{"type": "sentence_transformers.models.Transformer"}]));
    pooled(folder, "mean_tokens");
}

fn pooled(folder: &Path, mode: &str) {
    let mut config = json!({"word_embedding_dimension": 1, "pooling_mode_cls_token": false});
    config[format!("pooling_mode_{mode}")] = true.into();
    write(folder, "1_Pooling/config.json", &config);
}

fn vector(gguf: &Gguf) -> Vec<f32> {
    let engine = Engine::load(gguf, &Options { threads: 1, ..Options::default() }).unwrap();
    engine.embed(&[EmbedInput::Text("The house, THE forest".into())], false).unwrap().vectors.remove(0)
}

#[test]
fn a_checkpoint_is_the_model_that_its_gguf_file_is() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path());
    let by_folder = open(folder.path()).unwrap();
    let mean = vector(&by_folder);
    assert_eq!(mean, vector(&fixture()));
    let by_file = open(&folder.path().join(WEIGHTS)).unwrap();
    assert_eq!(by_file.identity(), by_folder.identity());
    assert_eq!(by_file.name(), by_folder.name());
    pooled(folder.path(), "cls_token");
    let first = open(folder.path()).unwrap();
    assert_ne!(vector(&first), mean);
    assert_ne!(first.identity(), by_folder.identity());
    // Without this setting the mean is used.
    fs::remove_dir_all(folder.path().join("1_Pooling")).unwrap();
    assert_eq!(vector(&open(folder.path()).unwrap()), mean);
}

#[test]
fn a_changed_file_of_a_checkpoint_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path());
    let gguf = open(folder.path()).unwrap();
    gguf.check_unchanged().unwrap();
    let path = folder.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text} ")).unwrap();
    let error = gguf.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("config.json was changed"), "{error}");
}

#[test]
fn what_is_not_understood_is_refused_with_file_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let refused = |expected: &str| {
        let error = open(root).err().unwrap_or_else(|| panic!("not refused: {expected}"));
        let shown = format!(
            "{error}: {}",
            std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default()
        );
        assert!(shown.contains(expected), "{shown}");
    };
    let edit = |file: &str, pointer: &str, value: Json, expected: &str| {
        checkpoint(root);
        let mut json: Json = serde_json::from_slice(&fs::read(root.join(file)).unwrap()).unwrap();
        *json.pointer_mut(pointer).unwrap() = value;
        write(root, file, &json);
        refused(expected);
    };
    edit(
        "config.json",
        "/model_type",
        "t5".into(),
        "config.json has `model_type` \"t5\" (known: bert), which",
    );
    edit("config.json", "/hidden_act", "relu".into(), "`hidden_act` \"relu\" (known: \"gelu\")");
    edit("config.json", "/hidden_size", json!([1]), "`hidden_size` [1]");
    edit("tokenizer.json", "/model/type", "BPE".into(), "`model.type` \"BPE\" (known: \"WordPiece\")");
    edit("tokenizer.json", "/model/vocab/[CLS]", 9999.into(), "`model.vocab` whose ids are not counted");
    edit("tokenizer.json", "/post_processor/single", json!([]), "`post_processor.single` []");
    edit("tokenizer.json", "/normalizer", Json::Null, "`normalizer.type` null");
    edit("modules.json", "/0/type", "x.Dense".into(), "the module \"x.Dense\" (known: Transformer,");
    checkpoint(root);
    pooled(root, "max_tokens");
    refused("1_Pooling/config.json has pooling by [max_tokens]");
    checkpoint(root);
    let mut config: Json = serde_json::from_slice(&fs::read(root.join("config.json")).unwrap()).unwrap();
    config["rope_theta"] = 1.into();
    write(root, "config.json", &config);
    refused("`rope_theta` 1, which this build does not know");
    checkpoint(root);
    let whole = fs::read(root.join(WEIGHTS)).unwrap();
    fs::write(root.join(WEIGHTS), &whole[..whole.len() - 1]).unwrap();
    refused("of the data, which has");
    for length in [0, 7, 20] {
        fs::write(root.join(WEIGHTS), &whole[..length]).unwrap();
        refused("partial download?");
    }
    let mut other = whole.clone();
    let at = whole.windows(11).position(|bytes| bytes == b"token_type_").unwrap();
    other[at..at + 5].copy_from_slice(b"tokyn");
    fs::write(root.join(WEIGHTS), &other).unwrap();
    refused("the tensor `embeddings.tokyn_type_embeddings.weight`");
    fs::write(root.join(WEIGHTS), &whole).unwrap();
    fs::write(root.join("tokenizer.json"), "{").unwrap();
    refused("tokenizer.json is no JSON");
    fs::remove_file(root.join("tokenizer.json")).unwrap();
    refused("tokenizer.json: a checkpoint is model.safetensors with");
    // A folder without tensors, and any other file, are handled as before.
    fs::remove_file(root.join(WEIGHTS)).unwrap();
    refused("is a directory: name the .gguf file in it");
    assert!(open(&root.join("no.gguf")).unwrap_err().to_string().contains("can't open model file"));
}

#[test]
fn tensors_have_canonical_names() {
    let (_, facts) = CheckpointFacts::of("bert").unwrap().unwrap();
    let check =
        |name: &str, expected: Option<&str>| assert_eq!(facts.tensor(name).as_deref(), expected, "{name}");
    check("embeddings.word_embeddings.weight", Some("token_embd.weight"));
    check("encoder.layer.11.attention.output.dense.bias", Some("blk.11.attn_output.bias"));
    check("encoder.layer.0.output.dense.weight", Some("blk.0.ffn_down.weight"));
    check("encoder.layer.x.output.dense.weight", None);
    check("encoder.layer.0.output.denser.weight", None);
    check("embeddings.word_embeddings", None);
    assert_eq!(CheckpointFacts::of("roberta").unwrap().map(|facts| facts.0), None);
}
