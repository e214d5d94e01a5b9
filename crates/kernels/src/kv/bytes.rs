//! Saves and restores rows as bytes: exactly the stored numbers, little-endian.

use super::{KvRows, Numbers};
use crate::format::BLOCK;

impl KvRows {
    /// Bytes of this many rows.
    pub fn bytes_of(&self, slots: usize) -> usize {
        let numbers = slots * self.width;
        match &self.numbers {
            Numbers::F32(_) => 4 * numbers,
            Numbers::F16(_) => 2 * numbers,
            Numbers::Q8_0 { .. } => numbers / BLOCK * (2 + BLOCK),
        }
    }

    /// Appends the `slots` rows from `slot` on to `out`: their numbers; for
    /// [`KvFormat::Q8_0`](super::KvFormat::Q8_0) first all scales, then all quants.
    ///
    /// # Panics
    /// If there are fewer slots.
    pub fn save(&self, slot: usize, slots: usize, out: &mut Vec<u8>) {
        let range = slot * self.width..(slot + slots) * self.width;
        match &self.numbers {
            Numbers::F32(numbers) => put(&numbers[range], f32::to_le_bytes, out),
            Numbers::F16(numbers) => put(&numbers[range], u16::to_le_bytes, out),
            Numbers::Q8_0 { scales, quants } => {
                put(&scales[range.start / BLOCK..range.end / BLOCK], u16::to_le_bytes, out);
                put(&quants[range], i8::to_le_bytes, out);
            }
        }
    }

    /// Restores `slots` rows saved by [`save`](Self::save) to the slots from `slot` on.
    ///
    /// # Panics
    /// If there are fewer slots, or `bytes` doesn't have the length [`bytes_of`](Self::bytes_of)
    /// them.
    pub fn load(&mut self, slot: usize, slots: usize, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes_of(slots), "bytes of {slots} rows");
        let range = slot * self.width..(slot + slots) * self.width;
        match &mut self.numbers {
            Numbers::F32(numbers) => take(&mut numbers[range], f32::from_le_bytes, bytes),
            Numbers::F16(numbers) => take(&mut numbers[range], u16::from_le_bytes, bytes),
            Numbers::Q8_0 { scales, quants } => {
                let scales = &mut scales[range.start / BLOCK..range.end / BLOCK];
                let (first, second) = bytes.split_at(2 * scales.len());
                take(scales, u16::from_le_bytes, first);
                take(&mut quants[range], i8::from_le_bytes, second);
            }
        }
    }
}

/// On a little-endian machine both functions compile to one copy.
fn put<T: Copy, const N: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; N], out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + N * numbers.len(), 0);
    for (out, &number) in out[from..].as_chunks_mut::<N>().0.iter_mut().zip(numbers) {
        *out = bytes(number);
    }
}

fn take<T, const N: usize>(numbers: &mut [T], number: impl Fn([u8; N]) -> T, bytes: &[u8]) {
    for (out, &bytes) in numbers.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *out = number(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::KvFormat;
    use super::*;
    use crate::testing::{cpus, noise};

    #[test]
    fn what_was_taken_out_is_put_back_exactly() {
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
            let width = 64;
            let mut one = KvRows::zeros(9, width, format).expect("rows of 64 fit");
            one.write(&cpus()[0], 2, &noise(3, 5 * width));
            let mut bytes = vec![7];
            one.save(2, 5, &mut bytes);
            assert_eq!(bytes.len(), 1 + one.bytes_of(5));
            let mut other = KvRows::zeros(9, width, format).expect("rows of 64 fit");
            other.load(4, 5, &bytes[1..]);
            let mut again = Vec::new();
            other.save(4, 5, &mut again);
            assert_eq!(again, bytes[1..], "{format:?}");
        }
    }
}
