//! Finds the tokens that are prefixes of a text.

/// Tokens sorted by their bytes, so that one walk along a text finds all tokens that it begins
/// with.
#[derive(Debug)]
pub(super) struct Prefixes {
    tokens: Vec<(Box<[u8]>, u32)>,
}

impl Prefixes {
    /// Of tokens with the same bytes only the first counts; empty ones are ignored.
    pub(super) fn new<'a>(tokens: impl Iterator<Item = (&'a [u8], u32)>) -> Prefixes {
        let mut tokens: Vec<(Box<[u8]>, u32)> =
            tokens.filter(|(bytes, _)| !bytes.is_empty()).map(|(bytes, id)| (bytes.into(), id)).collect();
        tokens.sort();
        tokens.dedup_by(|later, first| later.0 == first.0);
        Prefixes { tokens }
    }

    /// Length in bytes and id of each token that `text` begins with, shortest first.
    pub(super) fn of<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut left = &self.tokens[..];
        let step = move |(depth, byte): (usize, &u8)| {
            let from = left.partition_point(|(bytes, _)| bytes.get(depth) < Some(byte));
            let until = left.partition_point(|(bytes, _)| bytes.get(depth) <= Some(byte));
            left = &left[from..until];
            let (bytes, id) = left.first()?;
            Some((bytes.len() == depth + 1).then_some((depth + 1, *id)))
        };
        text.iter().enumerate().map_while(step).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_tokens_that_a_text_begins_with() {
        let tokens: [&[u8]; 7] = [b"ab", b"a", b"b", b"", b"abcd", b"ab", b"\xff"];
        let prefixes = Prefixes::new(tokens.into_iter().zip(0..));
        let of = |text: &[u8]| prefixes.of(text).collect::<Vec<_>>();
        assert_eq!(of(b"abcde"), [(1, 1), (2, 0), (4, 4)]);
        assert_eq!(of(b"abc"), [(1, 1), (2, 0)]);
        assert_eq!(of(b"\xff"), [(1, 6)]);
        assert_eq!(of(b"c"), []);
        assert_eq!(of(b""), []);
    }
}
