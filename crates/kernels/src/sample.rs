//! Kernels for sampling from all logits of a vocabulary: their argmax, and the terms of their
//! softmax.

use crate::exp::exp;
use crate::isa::for_each_isa;
use crate::wide::LANES;

/// Numbers compared before checking whether one was found.
const PIECE: usize = 16 * LANES;

/// Number of softmax terms that are summed together.
pub const TERMS: usize = 512;

/// Sums numbers in double precision: number i of a piece in lane i % 16, with lanes halved until
/// one is left.
#[inline(always)]
fn sum(x: &[f32]) -> f64 {
    let mut lanes = [0f64; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(x);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

for_each_isa! {
    /// The greatest finite number and its first index; `None` if there is none.
    pub fn argmax(x: &[f32]) -> Option<(f32, usize)> {
        let larger = |most: f32, x: f32| if x > most && x < f32::INFINITY { x } else { most };
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = larger(*lane, x);
            }
        }
        let mut most = f32::NEG_INFINITY;
        for &x in lanes.iter().chain(rest) {
            most = larger(most, x);
        }
        if most == f32::NEG_INFINITY {
            return None;
        }
        for (piece, x) in x.chunks(PIECE).enumerate() {
            let mut any = false;
            for &x in x {
                any |= x == most;
            }
            if any {
                return x.iter().position(|&x| x == most).map(|place| (most, piece * PIECE + place));
            }
        }
        None
    }

    /// `terms[i] = e^((logits[i] - most) / temperature)`, 0 for a logit that isn't finite; `sums`
    /// receives the sums of each [`TERMS`] terms.
    ///
    /// # Panics
    /// If `terms` and `logits` differ in length.
    pub fn softmax_terms(logits: &[f32], most: f32, temperature: f32, terms: &mut [f32], sums: &mut Vec<f64>) {
        assert_eq!(logits.len(), terms.len(), "softmax_terms");
        sums.clear();
        for (logits, terms) in logits.chunks(TERMS).zip(terms.chunks_mut(TERMS)) {
            for (term, &logit) in terms.iter_mut().zip(logits) {
                let e = exp((logit - most) / temperature);
                *term = if logit.abs() < f32::INFINITY { e } else { 0.0 };
            }
            sums.push(sum(terms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    fn logits(count: usize) -> Vec<f32> {
        let some = (0..count).map(|i| match i % 37 {
            5 => f32::NEG_INFINITY,
            11 => f32::NAN,
            17 => f32::INFINITY,
            _ => (i * 7919 % 1009) as f32 / 31.0 - 20.0,
        });
        some.collect()
    }

    #[test]
    fn the_first_of_the_greatest_finite_ones_is_found() {
        for isa in Isa::available() {
            for count in [0, 1, 15, 16, 17, 255, 256, 600, 5000] {
                let x = logits(count);
                let expected = x.iter().copied().enumerate().filter(|(_, x)| x.is_finite());
                let expected = expected.fold(None, |most: Option<(f32, usize)>, (place, x)| match most {
                    Some(most) if x <= most.0 => Some(most),
                    _ => Some((x, place)),
                });
                assert_eq!(argmax(isa, &x), expected, "{isa:?} {count}");
            }
            assert_eq!(argmax(isa, &[f32::NAN, f32::NEG_INFINITY, f32::INFINITY]), None);
        }
    }

    #[test]
    fn terms_are_those_of_the_softmax_whatever_the_instruction_set() {
        for count in [1, 16, 511, 512, 513, 2000] {
            let x = logits(count);
            let (most, _) = argmax(Isa::SCALAR, &x).unwrap();
            for temperature in [0.05, 0.8, 3.0, 1e30] {
                let (mut plain, mut plain_sums) = (vec![0.0; count], Vec::new());
                softmax_terms(Isa::SCALAR, &x, most, temperature, &mut plain, &mut plain_sums);
                assert_eq!(plain_sums.len(), count.div_ceil(TERMS));
                for (piece, total) in plain.chunks(TERMS).zip(&plain_sums) {
                    let exact: f64 = piece.iter().map(|&term| f64::from(term)).sum();
                    assert!((exact - total).abs() <= 1e-12 * exact, "{exact} {total}");
                }
                for (&term, &logit) in plain.iter().zip(&x) {
                    let exact = (f64::from((logit - most) / temperature)).exp();
                    let exact = if logit.is_finite() { exact } else { 0.0 };
                    assert!(
                        (f64::from(term) - exact).abs() <= 2e-7 * exact + 1e-37,
                        "{logit} {temperature}: {term}"
                    );
                }
                for isa in Isa::available() {
                    let (mut terms, mut sums) = (vec![9.0; count], vec![9.0]);
                    softmax_terms(isa, &x, most, temperature, &mut terms, &mut sums);
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&terms), bits(&plain), "{isa:?}");
                    assert_eq!(sums, plain_sums, "{isa:?}");
                }
            }
        }
    }
}
