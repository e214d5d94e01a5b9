//! SentencePiece's table of character replacements applied before tokenization
//! (`precompiled_charsmap`).
//!
//! Four bytes hold the length of a double array (darts-clone), a trie over the bytes to replace.
//! The replacements follow, each terminated by a zero.
//! An entry of the array is 32 bits.
//! Bits 0 to 7 are the byte that leads to it; bit 8 is set if it has a replacement.
//! Bits 10 to 30 hold the offset of its children, times 256 if bit 9 is set.
//! The entry of a replacement has bit 31 set and holds its offset in the other bits.

const IS_LEAF: u32 = 1 << 31;
const HAS_LEAF: u32 = 1 << 8;
const FAR: u32 = 1 << 9;

#[derive(Debug)]
pub(super) struct CharsMap {
    entries: Vec<u32>,
    replacements: String,
}

impl CharsMap {
    /// `None` if the bytes aren't such a table.
    pub(super) fn new(bytes: &[u8]) -> Option<CharsMap> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (array, replacements) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (array, odd) = array.as_chunks::<4>();
        let replacements = std::str::from_utf8(replacements).ok()?.to_owned();
        let entries: Vec<u32> = array.iter().map(|entry| u32::from_le_bytes(*entry)).collect();
        (odd.is_empty() && !entries.is_empty()).then_some(CharsMap { entries, replacements })
    }

    /// The longest prefix of `text` that is replaced: its length in bytes, and the replacement.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let children = |entry: u32| ((entry >> 10) << if entry & FAR == 0 { 0 } else { 8 }) as usize;
        let mut longest = None;
        let mut node = children(self.entries[0]);
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            node ^= usize::from(byte);
            let Some(&entry) = self.entries.get(node) else { break };
            if byte == 0 || entry & (IS_LEAF | 0xff) != u32::from(byte) {
                break;
            }
            node ^= children(entry);
            if entry & HAS_LEAF != 0
                && let Some(&leaf) = self.entries.get(node)
                && let Some(replacement) = self.replacements.get((leaf & !IS_LEAF) as usize..)
            {
                longest = Some((index + 1, replacement.split('\0').next().unwrap_or_default()));
            }
        }
        longest.filter(|(length, _)| text.is_char_boundary(*length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_tables_are_none_or_replace_nothing() {
        assert!(CharsMap::new(b"").is_none());
        assert!(CharsMap::new(&[0, 0, 0, 0, 97, 0]).is_none());
        assert!(CharsMap::new(&[8, 0, 0, 0, 1, 2, 3, 4]).is_none());
        assert!(CharsMap::new(&[4, 0, 0, 0, 1, 2, 3, 4, 0xff]).is_none());
        let map = CharsMap::new(&[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 97, 0]).unwrap();
        assert_eq!(map.longest("abc"), None);
        assert_eq!(map.longest(""), None);
    }
}
