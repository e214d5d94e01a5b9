//! Checks whether a GGUF file is a language model, rather than a companion file of models that
//! looks like one.

use alara_text::gguf::Gguf;

use crate::{Error, Result};

/// Accepts a file that could be a language model.
///
/// # Errors
/// [`Error::NotAModel`], with the kind of the file and what to use instead.
/// Such kinds are a vision or audio projector (`general.architecture` is `clip`, or `general.type`
/// is `mmproj`), a LoRA adapter or control vector, an importance matrix, and a vocabulary without
/// weights.
/// Keys and values are those in llama.cpp's `gguf-py/gguf/constants.py`.
pub(crate) fn check(gguf: &Gguf) -> Result<()> {
    let text = |key: &str| gguf.metadata().str(key).ok().flatten().unwrap_or_default();
    let ends = |ending: &str| gguf.tensors().any(|tensor| tensor.name.ends_with(ending));
    let (what, remedy) = match (text("general.type"), text("general.architecture")) {
        ("mmproj", _) | (_, "clip") => (
            "a projector for images or sound (mmproj), which belongs to a model",
            "name the model's own file, which lies beside it without `mmproj` in its name",
        ),
        ("adapter", "controlvector") | (_, "controlvector") => (
            "a control vector, which changes a model and is none",
            "name the file of the model that it was made for",
        ),
        ("adapter", _) => LORA,
        _ if !text("adapter.type").is_empty() || ends(".lora_a") => LORA,
        ("imatrix", _) => (
            "an importance matrix, which serves to quantize a model and is none",
            "name the file of the model that it was made for",
        ),
        _ if gguf.tensor("token_embd.weight").is_none() && !gguf.tensors().any(in_a_block) => (
            "a vocabulary without weights",
            "name the file of a model; a vocabulary serves `alara debug tokenize` alone",
        ),
        _ => return Ok(()),
    };
    Err(Error::NotAModel { file: gguf.name().into(), what, remedy })
}

const LORA: (&str, &str) = (
    "a LoRA adapter, which changes a model and is none",
    "name a file into which the adapter was merged, or the model without it",
);

/// Whether a tensor belongs to a decoder layer of any family.
fn in_a_block(tensor: &alara_text::gguf::TensorInfo) -> bool {
    tensor.name.starts_with("blk.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alara_text::gguf::{TensorType, Writer};

    fn check(writer: &Writer, expected: &str) {
        let gguf = Gguf::from_vec("test.gguf", writer.bytes().unwrap()).unwrap();
        let found = super::check(&gguf).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            if expected.is_empty() { found.is_empty() } else { found.contains(expected) },
            "{found:?} lacks {expected:?}"
        );
    }

    fn file(architecture: &str) -> Writer {
        Writer::new().meta("general.architecture", architecture)
    }

    fn with(writer: Writer, tensor: &str) -> Writer {
        writer.tensor(tensor, &[1], TensorType::F32, [0; 4])
    }

    #[test]
    fn models() {
        check(&with(file("llama"), "token_embd.weight"), "");
        check(&with(file("llama").meta("general.type", "model"), "token_embd.weight"), "");
        // An incomplete model; loading it reports the missing tensor by name.
        check(&with(file("llama"), "blk.0.attn_norm.weight"), "");
    }

    #[test]
    fn what_lies_beside_models() {
        let projector = "is no language model but a projector for images or sound";
        check(&with(file("clip"), "v.patch_embd.weight"), projector);
        check(&with(file("clip").meta("general.type", "mmproj"), "mm.0.weight"), projector);
        check(&with(file("qwen3").meta("general.type", "adapter"), "blk.0.attn_q.weight.lora_a"), "LoRA");
        check(&with(file("llama").meta("adapter.type", "lora"), "blk.0.attn_q.weight"), "LoRA");
        check(&with(file("llama"), "blk.0.attn_q.weight.lora_a"), "LoRA");
        check(&with(file("controlvector"), "direction.1"), "control vector");
        check(&file("imatrix").meta("general.type", "imatrix"), "importance matrix");
        check(&file("qwen3").meta("tokenizer.ggml.model", "gpt2"), "a vocabulary without weights");
        check(&Writer::new(), "a vocabulary without weights");
    }
}
