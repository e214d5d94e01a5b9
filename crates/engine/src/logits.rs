//! The logits of a step, of which no more is read than a draw needs.

use crate::Result;
use crate::backend::{Backend, Greatest, Numbers};
use crate::decoder::Decoder;

/// Rows of logits; a token is drawn from each.
pub trait Logits {
    /// All of row `row`, to be worked on.
    /// `[V]`
    ///
    /// # Errors
    /// If they can't be read.
    fn row(&mut self, row: usize) -> Result<&mut [f32]>;

    /// The `count` greatest finite ones of row `row`, with their tokens, the greatest first and of
    /// equals the lower token: of those tokens whose bit is set, bit `i % 32` of `among[i / 32]`
    /// for token i.
    /// Fewer if there are no more.
    /// `None`: to read all of the row is as good.
    ///
    /// # Errors
    /// As [`Logits::row`].
    fn greatest(&mut self, row: usize, count: usize, among: &[u32]) -> Result<Greatest>;
}

/// What a decoder computed, where it is.
pub struct Computed<'a, B: Backend> {
    decoder: &'a mut Decoder<B>,
    /// `[rows, V]`; `None`: no rows, or they are `here`.
    there: Option<&'a mut B::Array>,
    /// The same on the host, once somebody wants a whole row.
    here: Option<Numbers<'a>>,
}

impl<'a, B: Backend> Computed<'a, B> {
    /// `there` are logits of `decoder`.
    pub fn new(decoder: &'a mut Decoder<B>, there: Option<&'a mut B::Array>) -> Self {
        Computed { decoder, there, here: None }
    }
}

impl<B: Backend> Logits for Computed<'_, B> {
    fn row(&mut self, row: usize) -> Result<&mut [f32]> {
        let vocabulary = self.decoder.vocabulary();
        if let Some(there) = self.there.take() {
            self.here = Some(self.decoder.read_mut(there)?);
        }
        let here = self.here.as_deref_mut().unwrap_or_default();
        Ok(&mut here[row * vocabulary..][..vocabulary])
    }

    fn greatest(&mut self, row: usize, count: usize, among: &[u32]) -> Result<Greatest> {
        match &self.there {
            Some(there) => self.decoder.greatest(there, row, count, among),
            None => Ok(None),
        }
    }
}
