//! The format of a cache file.
//!
//! `alaraKV` and a version byte · length and CRC-32 of everything from there to the payload (u32
//! each).
//! Then the length of the header (u32) · the header, JSON · the tokens, u32.
//! Then the payload: pieces, each followed by its CRC-32.
//! Everything is little-endian.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"alaraKV\x01";

/// Bytes before the checksummed part.
const PREAMBLE: usize = 16;

/// Most bytes before the payload.
const LONGEST: usize = 64 << 20;

/// Bytes of each piece's checksum.
pub(super) const CHECKSUM: usize = 4;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The model's name, for display.
    pub model: String,
    /// A fingerprint of everything that the contents depend on.
    pub fingerprint: String,
    /// Number of tokens before those whose keys and values this file holds.
    pub start: usize,
    /// Number of tokens from the beginning of the text.
    pub tokens: usize,
    /// Bytes of the pieces, without their checksums.
    pub payload: u64,
    /// Nanoseconds that computing one token took.
    pub token_ns: u64,
}

impl Header {
    /// Serializes everything before the payload.
    pub fn bytes(&self, tokens: &[u32]) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut checked = (json.len() as u32).to_le_bytes().to_vec();
        checked.extend(json);
        tokens.iter().for_each(|token| checked.extend(token.to_le_bytes()));
        let mut bytes = MAGIC.to_vec();
        bytes.extend((checked.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&checked).to_le_bytes());
        bytes.extend(checked);
        bytes
    }
}

/// Why a file isn't used.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It can't be read at the moment.
    #[error(transparent)]
    Io(std::io::Error),
    /// Its contents are invalid.
    #[error("{0}")]
    Damaged(&'static str),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Fault::Damaged("it is cut off"),
            _ => Fault::Io(error),
        }
    }
}

/// An open file with verified header and tokens.
/// It is read rather than mapped, so if it is truncated meanwhile, only reading fails.
#[derive(Debug)]
pub struct Stored {
    /// The file's path.
    pub path: PathBuf,
    /// The header.
    pub header: Header,
    /// The tokens, from the beginning of the text.
    pub tokens: Vec<u32>,
    /// Positioned at the next piece.
    file: File,
    /// Bytes of the whole file, and of the payload.
    bytes: u64,
    payload: u64,
}

impl Stored {
    /// Opens a file and verifies everything but its payload.
    ///
    /// # Errors
    /// If it can't be read, or is invalid.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        // Opening a pipe would wait for a writer.
        if !path.symlink_metadata()?.is_file() {
            return Err(Fault::Damaged("it is no file"));
        }
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut preamble = [0; PREAMBLE];
        file.read_exact(&mut preamble)?;
        let [magic, length, checksum] = [0..8, 8..12, 12..16].map(|range| &preamble[range]);
        if magic != MAGIC {
            return Err(Fault::Damaged("it is of another form"));
        }
        let odd = || Fault::Damaged("its header is wrong");
        let length = number(length) as usize;
        let payload = bytes.checked_sub((PREAMBLE + length) as u64).ok_or(Fault::Damaged("it is cut off"))?;
        if length > LONGEST {
            return Err(odd());
        }
        let mut checked = vec![0; length];
        file.read_exact(&mut checked)?;
        if crc32fast::hash(&checked) != number(checksum) {
            return Err(Fault::Damaged("the checksum of its header is wrong"));
        }
        let (json, rest) = checked.split_first_chunk::<4>().ok_or_else(odd)?;
        let (json, tokens) = rest.split_at_checked(number(json) as usize).ok_or_else(odd)?;
        let header: Header = serde_json::from_slice(json).map_err(|_| odd())?;
        if header.tokens.checked_mul(4) != Some(tokens.len()) || header.start >= header.tokens {
            return Err(odd());
        }
        let tokens = tokens.as_chunks::<4>().0.iter().map(|bytes| number(bytes)).collect();
        Ok(Stored { path: path.to_owned(), header, tokens, file, bytes, payload })
    }

    /// Checks that the payload's length fits pieces of these `lengths`.
    ///
    /// # Errors
    /// If it doesn't.
    pub fn expect(&self, lengths: impl Iterator<Item = usize>) -> Result<(), Fault> {
        match self.payload.cmp(&lengths.map(|length| (length + CHECKSUM) as u64).sum()) {
            std::cmp::Ordering::Less => Err(Fault::Damaged("it is cut off")),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(Fault::Damaged("it is longer than it should be")),
        }
    }

    /// Reads the next piece of the payload into `piece` and verifies its checksum.
    ///
    /// # Errors
    /// If it can't be read, or the checksum is wrong.
    pub fn read(&mut self, piece: &mut [u8]) -> Result<(), Fault> {
        let mut checksum = [0; CHECKSUM];
        self.file.read_exact(piece)?;
        self.file.read_exact(&mut checksum)?;
        match crc32fast::hash(piece) == number(&checksum) {
            true => Ok(()),
            false => Err(Fault::Damaged("a checksum is wrong")),
        }
    }

    /// Updates the time of last use.
    /// Has no effect in a read-only folder.
    pub fn touch(&self) {
        let _ = self.file.set_modified(std::time::SystemTime::now());
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Reads four bytes as a number; all slices here are at least that long.
fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
