//! The table of tensors of a safetensors file.
//! Format: <https://github.com/huggingface/safetensors>: the length of a JSON text as 64 bits, the
//! text, and the data.

use std::collections::BTreeMap;

use alara_text::gguf::{Assembled, TensorType};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::error::CheckpointError;

/// Most bytes of the table, as the format prescribes.
const LARGEST: u64 = 100_000_000;
const METADATA: &str = "__metadata__";

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    /// Row length last.
    shape: Vec<u64>,
    /// Offsets from the beginning of the data.
    data_offsets: [u64; 2],
}

/// The tensors of a file, ordered by name.
pub fn tensors(file: &str, bytes: &[u8]) -> Result<Vec<Assembled>, CheckpointError> {
    let wrong = |problem: String| CheckpointError::Tensors { file: file.to_owned(), problem };
    let (length, rest) =
        bytes.split_first_chunk::<8>().ok_or_else(|| wrong(format!("it has {} bytes", bytes.len())))?;
    let length = u64::from_le_bytes(*length);
    let table = usize::try_from(length).ok().filter(|_| length <= LARGEST).and_then(|end| rest.get(..end));
    let table = table.ok_or_else(|| wrong(format!("its table of tensors would have {length} bytes")))?;
    let mut table: BTreeMap<String, Json> = serde_json::from_slice(table)
        .map_err(|error| wrong(format!("its table of tensors is no JSON: {error}")))?;
    table.remove(METADATA);
    let (start, end) = (8 + length, bytes.len() as u64);
    let read = |(name, about): (String, Json)| {
        let shown = name.escape_debug().to_string();
        let entry: Entry =
            serde_json::from_value(about).map_err(|error| wrong(format!("tensor `{shown}`: {error}")))?;
        // Others are refused when they are used in computation.
        let (kind, width) = match entry.dtype.as_str() {
            "F32" => (TensorType::F32, 4),
            "F16" => (TensorType::F16, 2),
            "BF16" => (TensorType::BF16, 2),
            "F64" => (TensorType::F64, 8),
            "I64" => (TensorType::I64, 8),
            "I32" => (TensorType::I32, 4),
            other => return Err(wrong(format!("tensor `{shown}` is of type {}", other.escape_debug()))),
        };
        let [from, to] = entry.data_offsets;
        let values = entry.shape.iter().try_fold(1u64, |values, &size| values.checked_mul(size));
        let bytes = values.and_then(|values| values.checked_mul(width));
        let until = start.checked_add(to).filter(|until| *until <= end);
        if bytes.is_none() || bytes != to.checked_sub(from) || until.is_none() {
            let problem = format!(
                "tensor `{shown}` of {:?} should lie at bytes {from} to {to} of the data, which has {}",
                entry.shape,
                end - start
            );
            return Err(wrong(problem));
        }
        let shape = entry.shape.into_iter().rev().collect();
        Ok(Assembled { name, shape, kind, range: start + from..start + to })
    };
    table.into_iter().map(read).collect()
}
