//! Models split into several files: `NAME-00001-of-00003.gguf` and so on, each a complete GGUF
//! file.

use std::path::{Path, PathBuf};

use super::parse::ParsedFile;
use super::{GgufError, Metadata};

/// The position of a file in a split model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SplitNumber {
    /// Counts from 0, like `split.no`.
    pub(super) number: u64,
    pub(super) count: u64,
}

impl SplitNumber {
    /// `None` for an unsplit model.
    pub(super) fn of(part: &ParsedFile) -> Result<Option<SplitNumber>, GgufError> {
        let metadata: &Metadata = &part.metadata;
        let count = metadata.u64("split.count")?.unwrap_or(1);
        if count <= 1 {
            return Ok(None);
        }
        let number = metadata.u64("split.no")?.ok_or_else(|| metadata.missing("split.no"))?;
        Ok(Some(SplitNumber { number: number.min(count), count }))
    }
}

/// Opens all parts, in order, given one of them.
pub(super) fn open_all(
    path: &Path,
    given: ParsedFile,
    place: SplitNumber,
) -> Result<Vec<ParsedFile>, GgufError> {
    let Some(prefix) = prefix(path, place) else {
        return Err(GgufError::SplitName {
            file: path.display().to_string(),
            number: place.number + 1,
            count: place.count,
        });
    };
    let sibling = |number: u64| -> PathBuf {
        path.with_file_name(format!("{prefix}-{:05}-of-{:05}.gguf", number + 1, place.count))
    };
    // Check before mapping any: a hostile count causes no work beyond the first missing part.
    for number in 0..place.count {
        let path = sibling(number);
        if number != place.number && !path.exists() {
            let file = path.display().to_string();
            return Err(GgufError::SplitMissing { file, number: number + 1, count: place.count });
        }
    }
    let mut given = Some(given);
    let mut parts = Vec::new();
    for number in 0..place.count {
        let part = match given.take_if(|_| number == place.number) {
            Some(part) => part,
            None => ParsedFile::open(&sibling(number))?,
        };
        let found = SplitNumber::of(&part)?;
        if found != Some(SplitNumber { number, count: place.count }) {
            return Err(GgufError::SplitMismatch {
                file: part.name.to_string(),
                number: number + 1,
                count: place.count,
                found: match found {
                    Some(other) => format!("part {} of {}", other.number + 1, other.count),
                    None => "a whole model".to_owned(),
                },
            });
        }
        parts.push(part);
    }
    check_total(&parts)?;
    Ok(parts)
}

/// The part of the name before `-00001-of-00003.gguf`, if the name matches the position.
fn prefix(path: &Path, place: SplitNumber) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let ending = format!("-{:05}-of-{:05}.gguf", place.number + 1, place.count);
    name.strip_suffix(&ending).map(str::to_owned)
}

/// `split.tensors.count` is the number of tensors in all parts together.
fn check_total(parts: &[ParsedFile]) -> Result<(), GgufError> {
    let key = "split.tensors.count";
    let Some(first) = parts.first() else { return Ok(()) };
    let found: usize = parts.iter().map(|part| part.tensors.len()).sum();
    match first.metadata.u64(key)? {
        Some(stated) if stated != found as u64 => Err(GgufError::KeyType {
            file: first.name.to_string(),
            key: key.to_owned(),
            found: stated.to_string(),
            expected: "the number of tensors in all parts together",
        }),
        _ => Ok(()),
    }
}
