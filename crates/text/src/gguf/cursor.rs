//! Reads consecutive little-endian fields; errors name the position and the field.

use std::fmt::Arguments;

use super::GgufError;

/// A position in the bytes of one file.
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) file: &'a str,
    /// Whether counts and lengths have 64 bits (version 2 and later) rather than 32.
    pub(super) wide: bool,
}

impl<'a> Cursor<'a> {
    /// An error about the field that begins at `offset`.
    pub(super) fn error(&self, offset: usize, field: Arguments<'_>, problem: String) -> GgufError {
        GgufError::Malformed {
            file: self.file.to_owned(),
            offset: offset as u64,
            field: field.to_string(),
            problem,
        }
    }

    /// Bytes up to the end of the file.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    pub(super) fn take(&mut self, n: u64, field: Arguments<'_>) -> Result<&'a [u8], GgufError> {
        let left = self.left();
        if n > left {
            let problem = format!("needs {n} bytes, the file ends after {left} (is it a partial download?)");
            return Err(self.error(self.at, field, problem));
        }
        let taken = &self.bytes[self.at..self.at + n as usize];
        self.at += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, field: Arguments<'_>) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, field)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, field: Arguments<'_>) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: Arguments<'_>) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A length, count or dimension: 32 bits in version 1, 64 later.
    pub(super) fn size(&mut self, field: Arguments<'_>) -> Result<u64, GgufError> {
        if self.wide { self.u64(field) } else { Ok(u64::from(self.u32(field)?)) }
    }

    /// A count of items that take at least `least` bytes each.
    /// A count that exceeds the rest of the file is refused before anything is allocated.
    pub(super) fn count(&mut self, least: u64, field: Arguments<'_>) -> Result<usize, GgufError> {
        let offset = self.at;
        let count = self.size(field)?;
        if count > self.left() / least {
            let problem =
                format!("{count} of them can't be in the {} bytes that are left of the file", self.left());
            return Err(self.error(offset, field, problem));
        }
        Ok(count as usize)
    }

    /// The fewest bytes that a string takes: those of its length.
    pub(super) fn least_string(&self) -> u64 {
        if self.wide { 8 } else { 4 }
    }

    pub(super) fn string(&mut self, field: Arguments<'_>) -> Result<&'a str, GgufError> {
        let offset = self.at;
        let length = self.size(field)?;
        if length > self.left() {
            let problem = format!(
                "has {length} bytes, the file ends after {} (is it a partial download?)",
                self.left()
            );
            return Err(self.error(offset, field, problem));
        }
        let bytes = self.take(length, field)?;
        std::str::from_utf8(bytes).map_err(|e| self.error(offset, field, format!("is not UTF-8: {e}")))
    }
}
