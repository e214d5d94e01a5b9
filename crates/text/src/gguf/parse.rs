//! Parses one file: header, metadata, tensor table.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::shown;
use super::map::Bytes;
use super::{GgufError, Metadata, TensorInfo, TensorType, Value};

const MAGIC: &[u8; 4] = b"GGUF";
/// ggml tensors have at most four dimensions.
const MOST_DIMENSIONS: u32 = 4;
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;

/// One file of a model.
pub(super) struct ParsedFile {
    pub(super) name: Arc<str>,
    pub(super) bytes: Bytes,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

impl ParsedFile {
    pub(super) fn open(path: &Path) -> Result<ParsedFile, GgufError> {
        let file = path.display().to_string();
        match Bytes::map(path) {
            Ok(bytes) => ParsedFile::parse(&file, bytes),
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => Err(GgufError::Directory { file }),
            Err(source) => Err(GgufError::Open { file, source }),
        }
    }

    pub(super) fn parse(name: &str, bytes: Bytes) -> Result<ParsedFile, GgufError> {
        let mut cursor = Cursor { bytes: &bytes, at: 0, file: name, wide: true };
        read_magic(&mut cursor)?;
        read_version(&mut cursor)?;
        // The smallest entry: a name's length, then type id and one byte; or dimensions, type and
        // offset.
        let tensor_count = cursor.count(cursor.least_string() + 16, format_args!("number of tensors"))?;
        let key_count = cursor.count(cursor.least_string() + 5, format_args!("number of metadata keys"))?;

        let mut metadata = Metadata::default();
        metadata.set_file(name.into());
        for i in 0..key_count {
            read_key(&mut cursor, i, &mut metadata)?;
        }
        let alignment = alignment(&metadata, name)?;

        let mut entries = Vec::with_capacity(tensor_count);
        for i in 0..tensor_count {
            entries.push(Entry::read(&mut cursor, i, alignment)?);
        }
        let end = cursor.at as u64;
        let data_start = end.checked_next_multiple_of(alignment).ok_or_else(|| {
            cursor.error(
                cursor.at,
                format_args!("general.alignment"),
                format!("{alignment} is beyond any file"),
            )
        })?;
        let tensors = place(entries, data_start, &cursor)?;
        Ok(ParsedFile { name: name.into(), bytes, metadata, tensors })
    }
}

fn read_magic(cursor: &mut Cursor) -> Result<(), GgufError> {
    let start = &cursor.bytes[..cursor.bytes.len().min(4)];
    let not = |found: String| Err(GgufError::NotGguf { file: cursor.file.to_owned(), found });
    match start {
        b"GGUF" => {
            cursor.at = MAGIC.len();
            Ok(())
        }
        b"FUGG" => Err(GgufError::BigEndian { file: cursor.file.to_owned() }),
        b"" => not("it is empty".to_owned()),
        b"vers" if cursor.bytes.starts_with(b"version https://git-lfs") => {
            not("it is a Git LFS pointer; fetch the file itself with `git lfs pull`".to_owned())
        }
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => {
            not("it is of a GGML format older than GGUF; convert the model again".to_owned())
        }
        other => not(format!("it begins with \"{}\"", other.escape_ascii())),
    }
}

fn read_version(cursor: &mut Cursor) -> Result<(), GgufError> {
    let version = cursor.u32(format_args!("version"))?;
    match version {
        1 => cursor.wide = false,
        2 | 3 => cursor.wide = true,
        // A small number with swapped bytes.
        _ if (1..0x1_0000).contains(&version.swap_bytes()) => {
            return Err(GgufError::BigEndian { file: cursor.file.to_owned() });
        }
        _ => return Err(GgufError::Version { file: cursor.file.to_owned(), version }),
    }
    Ok(())
}

fn read_key(cursor: &mut Cursor, i: usize, metadata: &mut Metadata) -> Result<(), GgufError> {
    let offset = cursor.at;
    let key = cursor.string(format_args!("name of metadata key {i}"))?;
    let value = Value::read(cursor, format_args!("value of {}", shown(key)))?;
    if metadata.insert(key, value) {
        return Ok(());
    }
    Err(cursor.error(offset, format_args!("metadata key {}", shown(key)), "is there twice".to_owned()))
}

fn alignment(metadata: &Metadata, file: &str) -> Result<u64, GgufError> {
    let key = "general.alignment";
    match metadata.u64(key)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(alignment) if alignment.is_power_of_two() => Ok(alignment),
        Some(other) => Err(GgufError::KeyType {
            file: file.to_owned(),
            key: key.to_owned(),
            found: other.to_string(),
            expected: "a power of two",
        }),
    }
}

/// A row of the tensor table as the file has it.
struct Entry {
    name: String,
    shape: Vec<u64>,
    kind: TensorType,
    /// Offset from the beginning of the data.
    offset: u64,
    /// `None` where the type's block size is unknown.
    bytes: Option<u64>,
    /// Offset of the row in the file, for messages.
    at: usize,
}

impl Entry {
    fn read(cursor: &mut Cursor, i: usize, alignment: u64) -> Result<Entry, GgufError> {
        let at = cursor.at;
        let name = cursor.string(format_args!("name of tensor {i}"))?.to_owned();
        let shown = shown(&name);

        let shape_at = cursor.at;
        let dimensions = cursor.u32(format_args!("number of dimensions of tensor {shown}"))?;
        if dimensions > MOST_DIMENSIONS {
            let problem = format!("is {dimensions}, the format allows {MOST_DIMENSIONS}");
            return Err(cursor.error(
                shape_at,
                format_args!("number of dimensions of tensor {shown}"),
                problem,
            ));
        }
        let shape = (0..dimensions)
            .map(|_| cursor.size(format_args!("shape of tensor {shown}")))
            .collect::<Result<Vec<u64>, _>>()?;
        let kind = TensorType(cursor.u32(format_args!("type of tensor {shown}"))?);
        let bytes = size(&shape, kind)
            .map_err(|problem| cursor.error(shape_at, format_args!("shape of tensor {shown}"), problem))?;

        let offset_at = cursor.at;
        let offset = cursor.u64(format_args!("offset of tensor {shown}"))?;
        if !offset.is_multiple_of(alignment) {
            let problem = format!("{offset} is not a multiple of the alignment, {alignment}");
            return Err(cursor.error(offset_at, format_args!("offset of tensor {shown}"), problem));
        }
        Ok(Entry { name, shape, kind, offset, bytes, at })
    }
}

/// Bytes of a shape; `None` if the type's block size is unknown.
/// Also checks that the number of values fits 64 bits.
fn size(shape: &[u64], kind: TensorType) -> Result<Option<u64>, String> {
    let row = shape.first().copied().unwrap_or(1);
    let too_large = || format!("{shape:?} is more than 64 bits can count");
    // In the order of `TensorInfo::values`, which multiplies unchecked: a trailing zero must not
    // hide an overflow before it.
    shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).ok_or_else(too_large)?;
    let rows: u64 = shape.iter().skip(1).try_fold(1u64, |n, &d| n.checked_mul(d)).ok_or_else(too_large)?;
    let Some((values, bytes)) = kind.block() else { return Ok(None) };
    if !row.is_multiple_of(values) {
        return Err(format!("rows of {row} values are not whole {kind} blocks of {values}"));
    }
    let row_bytes = (row / values).checked_mul(bytes).ok_or_else(too_large)?;
    row_bytes.checked_mul(rows).ok_or_else(too_large).map(Some)
}

/// Gives each tensor its range in the file, which must be in bounds.
fn place(entries: Vec<Entry>, data_start: u64, cursor: &Cursor) -> Result<Vec<TensorInfo>, GgufError> {
    let file_end = cursor.bytes.len() as u64;
    let mut starts: Vec<u64> = entries.iter().map(|entry| entry.offset).collect();
    starts.sort_unstable();
    entries
        .into_iter()
        .map(|entry| {
            let start = data_start.checked_add(entry.offset);
            let end = match (start, entry.bytes) {
                (Some(start), Some(bytes)) => start.checked_add(bytes),
                (start, _) => start.map(|start| {
                    let next = starts.get(starts.partition_point(|&other| other <= entry.offset));
                    next.map_or(file_end, |next| data_start.saturating_add(*next)).max(start)
                }),
            };
            match (start, end) {
                (Some(start), Some(end)) if end <= file_end => Ok(TensorInfo {
                    name: entry.name,
                    shape: entry.shape,
                    kind: entry.kind,
                    bytes: end - start,
                    part: 0,
                    start,
                }),
                (start, end) => {
                    let at = |byte: Option<u64>| byte.map_or_else(|| "2^64".to_owned(), |b| b.to_string());
                    Err(cursor.error(
                        entry.at,
                        format_args!("tensor {}", shown(&entry.name)),
                        format!(
                            "should lie at bytes {} to {}, the file ends at {file_end} (is it a partial download?)",
                            at(start),
                            at(end)
                        ),
                    ))
                }
            }
        })
        .collect()
}
