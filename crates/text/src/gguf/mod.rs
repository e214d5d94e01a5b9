//! GGUF files: header, metadata and tensor table over a memory map, and a writer.
//!
//! Owns only the container format.
//! It must not know any architecture or tokenizer: others interpret keys and tensors.
//! Format: `docs/gguf.md` of the ggml project, versions 1 to 3.
//!
//! Nothing in a file is trusted before it is checked.
//! A count is checked against the remaining bytes, a size is computed with overflow checks, a
//! tensor's range must lie in the file.
//! A malformed file gives a [`GgufError`] with byte offset and field.

mod cursor;
mod error;
mod identity;
mod map;
mod metadata;
mod parse;
mod split;
mod tensor_type;
mod value;
mod write;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

pub use error::GgufError;
pub use metadata::Metadata;
pub use tensor_type::TensorType;
pub use value::{Array, Strings, Value};
pub use write::Writer;

pub use map::Bytes;
use parse::ParsedFile;

/// An opened model file, all files of a split model, or a checkpoint presented as one file.
/// Cheap to clone; clones share the map.
#[derive(Clone, Debug)]
pub struct Gguf {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    /// The files with their names.
    parts: Vec<(Arc<str>, Bytes)>,
}

/// One row of the tensor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// For example `blk.0.attn_q.weight`.
    pub name: String,
    /// Sizes in GGUF's order: `shape[0]` is the length of a row, which lies contiguously.
    /// At most four; none is a scalar.
    pub shape: Vec<u64>,
    /// How values are stored.
    /// May be a type that this build doesn't know.
    pub kind: TensorType,
    /// Size in the file.
    /// For a type of unknown block size: the bytes up to the next tensor or the end of the file.
    pub bytes: u64,
    /// Index of the file in a split model.
    part: usize,
    /// Offset from the beginning of that file.
    start: u64,
}

/// A tensor in a file of another format.
pub struct Assembled {
    /// The name.
    pub name: String,
    /// Sizes in GGUF's order.
    pub shape: Vec<u64>,
    /// The type.
    pub kind: TensorType,
    /// The tensor's bytes; must lie in the file and match shape and type.
    pub range: Range<u64>,
}

impl TensorInfo {
    /// Number of values: the product of [`shape`](Self::shape), checked on opening not to overflow.
    pub fn values(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Byte offset from the beginning of the file that holds the tensor.
    pub fn offset(&self) -> u64 {
        self.start
    }
}

impl Gguf {
    /// Maps a file and reads its tables.
    /// Given any part of a split model, opens the other parts in its folder.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let first = ParsedFile::open(path)?;
        let parts = match split::SplitNumber::of(&first)? {
            Some(place) => split::open_all(path, first, place)?,
            None => vec![first],
        };
        Gguf::join(&path.display().to_string(), parts)
    }

    /// A file embedded in the program.
    /// `name` identifies it in messages.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Gguf, GgufError> {
        Gguf::from_bytes(name, Bytes::Static(bytes))
    }

    /// A file held in memory.
    /// `name` identifies it in messages.
    pub fn from_vec(name: &str, bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        Gguf::from_bytes(name, Bytes::Owned(Arc::new(bytes)))
    }

    fn from_bytes(name: &str, bytes: Bytes) -> Result<Gguf, GgufError> {
        let part = ParsedFile::parse(name, bytes)?;
        match split::SplitNumber::of(&part)? {
            None => Gguf::join(name, vec![part]),
            Some(place) => Err(GgufError::SplitName {
                file: name.to_owned(),
                number: place.number + 1,
                count: place.count,
            }),
        }
    }

    /// A model from files of another format: `tensors` lie in the first file, all are watched for
    /// changes.
    ///
    /// # Errors
    /// If two tensors have the same name.
    pub fn assembled(
        metadata: Vec<(String, Value)>,
        tensors: Vec<Assembled>,
        files: Vec<(String, Bytes)>,
    ) -> Result<Gguf, GgufError> {
        let name = files.first().map_or("", |file| &file.0).to_owned();
        let mut own = Metadata::default();
        for (key, value) in metadata {
            own.insert(&key, value);
        }
        let info = |Assembled { name, shape, kind, range }| TensorInfo {
            name,
            shape,
            kind,
            bytes: range.end - range.start,
            part: 0,
            start: range.start,
        };
        let mut tensors = tensors.into_iter().map(info).collect();
        let parts = files.into_iter().map(|(name, bytes)| ParsedFile {
            name: name.into(),
            bytes,
            metadata: std::mem::take(&mut own),
            tensors: std::mem::take(&mut tensors),
        });
        Gguf::join(&name, parts.collect())
    }

    /// The metadata come from the first part; the others only repeat their split number.
    fn join(name: &str, parts: Vec<ParsedFile>) -> Result<Gguf, GgufError> {
        let mut metadata = None;
        let mut tensors = Vec::new();
        let mut by_name = HashMap::new();
        let mut maps = Vec::with_capacity(parts.len());
        for (number, part) in parts.into_iter().enumerate() {
            for mut info in part.tensors {
                info.part = number;
                if by_name.insert(info.name.clone(), tensors.len()).is_some() {
                    return Err(GgufError::DuplicateTensor {
                        file: part.name.to_string(),
                        tensor: error::shown(&info.name),
                    });
                }
                tensors.push(info);
            }
            maps.push((part.name, part.bytes));
            metadata.get_or_insert(part.metadata);
        }
        let name: Arc<str> = name.into();
        let mut metadata = metadata.unwrap_or_default();
        metadata.set_file(name.clone());
        Ok(Gguf { inner: Arc::new(Inner { name, metadata, tensors, by_name, parts: maps }) })
    }

    /// The file's name in messages: the path as given, or a name for data inside the program.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Keys and values, in the order of the file.
    pub fn metadata(&self) -> &Metadata {
        &self.inner.metadata
    }

    /// All tensors in the order of the file; parts of a split model one after the other.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.inner.tensors.iter()
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.inner.by_name.get(name).map(|&i| &self.inner.tensors[i])
    }

    /// The stored bytes of a tensor of this file, [`TensorInfo::bytes`] long.
    /// Nothing is copied: the value keeps the map alive.
    /// Bytes from a map begin at a multiple of `general.alignment` (32 where absent); those of
    /// [`from_static`](Self::from_static) at any address.
    ///
    /// # Panics
    /// If `info` comes from another file and lies outside of this one.
    pub fn data(&self, info: &TensorInfo) -> TensorData {
        let source = self.inner.parts[info.part].1.clone();
        // Both fit: the range was checked against the mapped length when the table was read.
        let range = info.start as usize..(info.start + info.bytes) as usize;
        assert!(range.end <= source.len(), "tensor {} is not of {}", info.name, self.name());
        TensorData { source, range }
    }

    /// Total size of the file, all parts of a split one together.
    pub fn file_bytes(&self) -> u64 {
        self.inner.parts.iter().map(|(_, part)| part.len() as u64).sum()
    }

    /// Checks that the file was neither truncated nor modified since it was opened.
    /// A change shows in its length and modification time, or in lost pages of the map.
    /// Lost pages read as zeros, so callers check after computing, and discard the result on an
    /// error.
    /// Makes one system call per part.
    ///
    /// # Errors
    /// [`GgufError::Changed`] with the part's name; permanent once it occurred.
    pub fn check_unchanged(&self) -> Result<(), GgufError> {
        let changed = self.inner.parts.iter().find(|(_, part)| !(part.is_whole() && part.is_unchanged()));
        match changed {
            Some((file, _)) => Err(GgufError::Changed { file: file.to_string() }),
            None => Ok(()),
        }
    }

    /// Number of files: 1 unless the model is split, or a checkpoint.
    pub fn parts(&self) -> usize {
        self.inner.parts.len()
    }
}

/// The bytes of one tensor; keeps the file mapped.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct TensorData {
    source: Bytes,
    range: Range<usize>,
}

impl TensorData {
    /// Bytes that don't come from a file.
    pub fn of(bytes: Vec<u8>) -> TensorData {
        TensorData { range: 0..bytes.len(), source: Bytes::Owned(bytes.into()) }
    }

    /// Concatenates `parts` by copying.
    pub fn joined(parts: &[TensorData]) -> TensorData {
        let bytes = parts.iter().map(|part| &**part).collect::<Vec<_>>().concat();
        TensorData { range: 0..bytes.len(), source: Bytes::Owned(bytes.into()) }
    }

    /// The bytes in `range`, without a copy.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> TensorData {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {} bytes", self.len());
        let start = self.range.start;
        TensorData { source: self.source.clone(), range: start + range.start..start + range.end }
    }
}

impl Deref for TensorData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.source[self.range.clone()]
    }
}
