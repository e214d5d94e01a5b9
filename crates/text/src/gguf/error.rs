//! Errors about model files.

use std::io;

/// Why a GGUF file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file doesn't exist, or can't be read or mapped.
    #[error("can't open model file {file}")]
    Open {
        /// The path.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file was modified or truncated while it was mapped.
    #[error(
        "{file} was changed while it was in use: it was cut short, written over, or can't be read any more; start again with the whole \
         file (to put another one in its place, move it there: then what runs keeps the old one)"
    )]
    Changed {
        /// The file.
        file: String,
    },
    /// The path is a directory instead of a file.
    #[error("{file} is a directory: name the .gguf file in it")]
    Directory {
        /// The path.
        file: String,
    },
    /// The file doesn't begin with `GGUF`.
    #[error("{file} is not a GGUF file: {found}")]
    NotGguf {
        /// The file.
        file: String,
        /// What it seems to be.
        found: String,
    },
    /// Numbers are stored big-endian.
    #[error(
        "{file} is a big-endian GGUF file, made for another kind of machine: only little-endian ones can be read"
    )]
    BigEndian {
        /// The file.
        file: String,
    },
    /// The version is unknown to this build.
    #[error("{file} has GGUF version {version}: versions 1 to 3 can be read")]
    Version {
        /// The file.
        file: String,
        /// The file's version.
        version: u32,
    },
    /// The file ends too early, or a value in it is impossible.
    #[error("{file}, byte {offset}, {field}: {problem}")]
    Malformed {
        /// The file.
        file: String,
        /// Offset of the field from the beginning of the file.
        offset: u64,
        /// The field being read.
        field: String,
        /// The problem with it.
        problem: String,
    },
    /// Two tensors have the same name, in one file or in two parts of a split model.
    #[error("{file} holds the tensor {tensor} for a second time")]
    DuplicateTensor {
        /// The file with the second.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A required key is missing.
    #[error("{file} has no metadata key {key}")]
    MissingKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
    },
    /// A key has a value of the wrong type.
    #[error("{file}: metadata key {key} is {found}, expected {expected}")]
    KeyType {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// The actual type (and, if short, the value).
        found: String,
        /// The expected type.
        expected: &'static str,
    },
    /// The siblings of a part of a split model can't be found by name.
    #[error(
        "{file} is part {number} of a model split into {count} files: keep them together under names that end in \
         -00001-of-{count:05}.gguf and so on, and name one of them"
    )]
    SplitName {
        /// The part that was given.
        file: String,
        /// Its number, from 1.
        number: u64,
        /// Number of parts.
        count: u64,
    },
    /// A part of a split model is missing.
    #[error("part {number} of {count} of a split model is missing: {file}")]
    SplitMissing {
        /// The path where it was expected.
        file: String,
        /// Its number, from 1.
        number: u64,
        /// Number of parts.
        count: u64,
    },
    /// The metadata of a neighboring file identify it as another part, or as part of another model.
    #[error("{file} should be part {number} of {count} of a split model, but it says that it is {found}")]
    SplitMismatch {
        /// The file.
        file: String,
        /// The part number in its name, from 1.
        number: u64,
        /// Number of parts.
        count: u64,
        /// The part according to its metadata.
        found: String,
    },
}

/// Text from a file as error messages show it: escaped, and truncated if long.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}
