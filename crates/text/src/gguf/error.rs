//! What can be wrong with a model file.

use std::io;

/// Why a GGUF file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file is absent, unreadable or can't be mapped.
    #[error("can't open model file {file}")]
    Open {
        /// The path.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody wrote to the file, or cut it short, while it was mapped.
    #[error(
        "{file} was changed while it was in use: it was cut short, written over, or can't be read any more; start again with the whole \
         file (to put another one in its place, move it there: then what runs keeps the old one)"
    )]
    Changed {
        /// The file.
        file: String,
    },
    /// A directory where a file is wanted.
    #[error("{file} is a directory: name the .gguf file in it")]
    Directory {
        /// The path.
        file: String,
    },
    /// The file begins with something else than `GGUF`.
    #[error("{file} is not a GGUF file: {found}")]
    NotGguf {
        /// The file.
        file: String,
        /// What it seems to be.
        found: String,
    },
    /// Numbers are stored big end first.
    #[error(
        "{file} is a big-endian GGUF file, made for another kind of machine: only little-endian ones can be read"
    )]
    BigEndian {
        /// The file.
        file: String,
    },
    /// A version that did not exist when this was written.
    #[error("{file} has GGUF version {version}: versions 1 to 3 can be read")]
    Version {
        /// The file.
        file: String,
        /// The version that it states.
        version: u32,
    },
    /// The file ends too early, or a value in it is impossible.
    #[error("{file}, byte {offset}, {field}: {problem}")]
    Malformed {
        /// The file.
        file: String,
        /// Where the field begins, from the beginning of the file.
        offset: u64,
        /// What was being read.
        field: String,
        /// What is wrong with it.
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
    /// A key that is needed is not there.
    #[error("{file} has no metadata key {key}")]
    MissingKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
    },
    /// A key holds a value of another type than it should.
    #[error("{file}: metadata key {key} is {found}, expected {expected}")]
    KeyType {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// The type (and, where short, the value) that is there.
        found: String,
        /// The type that is wanted.
        expected: &'static str,
    },
    /// A part of a split model whose siblings can't be found by name.
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
    /// A part of a split model is absent.
    #[error("part {number} of {count} of a split model is missing: {file}")]
    SplitMissing {
        /// Where it should be.
        file: String,
        /// Its number, from 1.
        number: u64,
        /// Number of parts.
        count: u64,
    },
    /// A file beside the given part says that it is another part, or of another model.
    #[error("{file} should be part {number} of {count} of a split model, but it says that it is {found}")]
    SplitMismatch {
        /// The file.
        file: String,
        /// The part that its name promises, from 1.
        number: u64,
        /// Number of parts.
        count: u64,
        /// What its metadata says.
        found: String,
    },
}

/// Text from a file as messages show it: escaped, and cut where it is long.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}
