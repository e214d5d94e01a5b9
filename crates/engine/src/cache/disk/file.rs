//! The form of a file.
//!
//! `alaraKV` and a byte for the version · length and CRC-32 of what follows up to the payload (u32 each) · length of the header (u32) ·
//! the header, JSON · the tokens, u32 · the payload: pieces, each followed by its CRC-32. Everything is little-endian.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::gguf::Bytes;

const MAGIC: [u8; 8] = *b"alaraKV\x01";

/// Bytes before those that the first checksum is of.
const PREAMBLE: usize = 16;

/// Bytes of a piece's checksum.
pub(super) const CHECKSUM: usize = 4;

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The model, for people.
    pub model: String,
    /// What the contents depend on.
    pub fingerprint: String,
    /// Number of tokens before those whose keys and values are here.
    pub start: usize,
    /// Number of tokens from the beginning of the text.
    pub tokens: usize,
    /// Bytes of the pieces, without their checksums.
    pub payload: u64,
    /// Nanoseconds that computing one token took.
    pub token_ns: u64,
}

impl Header {
    /// All that comes before the payload.
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

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It can't be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is not what was written.
    #[error("{0}")]
    Damaged(&'static str),
}

/// A mapped file whose header and tokens are as they were written.
#[derive(Debug)]
pub struct Stored {
    /// Where it lies.
    pub path: PathBuf,
    /// What it says of itself.
    pub header: Header,
    bytes: Bytes,
    /// Where the tokens begin, and the payload.
    tokens_at: usize,
    payload_at: usize,
}

impl Stored {
    /// Maps a file and checks all but its payload.
    ///
    /// # Errors
    /// It can't be read, or is not what was written.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let bytes = Bytes::map(path)?;
        let (preamble, rest) =
            bytes.split_first_chunk::<PREAMBLE>().ok_or(Fault::Damaged("it is cut off"))?;
        let [magic, length, checksum] = [0..8, 8..12, 12..16].map(|range| &preamble[range]);
        if magic != MAGIC {
            return Err(Fault::Damaged("it is of another form"));
        }
        let length = number(length) as usize;
        let checked = rest.get(..length).ok_or(Fault::Damaged("it is cut off"))?;
        if crc32fast::hash(checked) != number(checksum) {
            return Err(Fault::Damaged("the checksum of its header is wrong"));
        }
        let odd = || Fault::Damaged("its header is wrong");
        let (json, tokens) = checked.split_first_chunk::<4>().ok_or_else(odd)?;
        let json_length = number(json) as usize;
        let json = tokens.get(..json_length).ok_or_else(odd)?;
        let header: Header = serde_json::from_slice(json).map_err(|_| odd())?;
        let tokens_at = PREAMBLE + 4 + json_length;
        let payload_at = PREAMBLE + length;
        if header.tokens.checked_mul(4) != Some(payload_at - tokens_at) || header.start >= header.tokens {
            return Err(odd());
        }
        Ok(Stored { path: path.to_owned(), header, bytes, tokens_at, payload_at })
    }

    /// The tokens, from the beginning of the text.
    pub fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.bytes[self.tokens_at..self.payload_at].as_chunks::<4>().0.iter().map(|bytes| number(bytes))
    }

    /// The pieces of the payload, which have these `lengths`, each as it was written.
    ///
    /// # Errors
    /// The payload is of another length, or a checksum is wrong.
    pub fn pieces(&self, lengths: impl Iterator<Item = usize>) -> Result<Vec<&[u8]>, Fault> {
        let mut rest = &self.bytes[self.payload_at..];
        let mut pieces = Vec::new();
        for length in lengths {
            let cut = || Fault::Damaged("it is cut off");
            let (piece, after) = rest.split_at_checked(length).ok_or_else(cut)?;
            let (checksum, after) = after.split_at_checked(CHECKSUM).ok_or_else(cut)?;
            if crc32fast::hash(piece) != number(checksum) {
                return Err(Fault::Damaged("a checksum is wrong"));
            }
            pieces.push(piece);
            rest = after;
        }
        match rest.is_empty() {
            true => Ok(pieces),
            false => Err(Fault::Damaged("it is longer than it should be")),
        }
    }

    /// Says that it was used now. In a folder that can't be changed it is not noted.
    pub fn touch(&self) {
        let now = std::time::SystemTime::now();
        let _ = std::fs::File::open(&self.path).and_then(|file| file.set_modified(now));
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Four bytes as a number; none of the slices here is shorter.
fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
