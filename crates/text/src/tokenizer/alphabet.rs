//! GPT-2's printable alphabet: each byte is written as one character, so that vocabularies are
//! readable text.
//!
//! Printable Latin-1 bytes represent themselves; the others follow from U+0100 on, in order.

/// The character of a byte.
pub(super) const fn letter(byte: u8) -> char {
    LETTERS[byte as usize]
}

/// The byte of a character; `None` for a character outside of the alphabet.
pub(super) fn byte(letter: char) -> Option<u8> {
    BYTES.get(letter as usize).copied().flatten()
}

const LETTERS: [char; 256] = letters();
const BYTES: [Option<u8>; 324] = bytes();

const fn letters() -> [char; 256] {
    let mut letters = ['\0'; 256];
    let mut shifted = 0;
    let mut byte = 0;
    while byte < 256 {
        letters[byte] = match byte as u8 {
            b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => b as char,
            _ => {
                shifted += 1;
                // All of U+0100 to U+0143 are characters.
                match char::from_u32(0xff + shifted) {
                    Some(letter) => letter,
                    None => unreachable!(),
                }
            }
        };
        byte += 1;
    }
    letters
}

const fn bytes() -> [Option<u8>; 324] {
    let mut bytes = [None; 324];
    let mut byte = 0;
    while byte < 256 {
        bytes[LETTERS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        for b in 0..=255 {
            assert_eq!(byte(letter(b)), Some(b));
        }
        assert_eq!((letter(b' '), letter(b'\n'), letter(b'a'), letter(0xad)), ('Ġ', 'Ċ', 'a', 'Ń'));
        assert_eq!(byte('你'), None);
        assert_eq!(byte(' '), None);
    }
}
