//! Chooses the kernel of a product, in this place only.
//!
//! [`RULES`] is a table whose first matching line applies.
//! Everything else follows from it: the layout of activations, the division of a product into
//! tasks, and the code that runs.
//! `alara debug kernels` prints it.
//! To add a kernel, add a variant of [`Kernel`], its lines in [`RULES`], and an arm where kernels
//! of its kind are called (`small_batch::multiply` or `gemm`).

use std::ops::RangeInclusive;

use crate::activations::TILE_ROWS;
use crate::isa::Level;
use crate::{Format, Isa};

/// A kernel of [`matmul`](crate::matmul()).
/// GEMV is a small batch of one row of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Any format, any batch: unpacks a chunk of a row of weights, then multiplies it with every
    /// row of activations.
    /// Plain Rust.
    DotScalar,
    /// [`Kernel::DotScalar`] with AVX2.
    DotAvx2,
    /// GEMV and small batches: four rows of weights share registers, on the fly.
    QuadsAvx2,
    /// [`Kernel::QuadsAvx2`] with AVX-512.
    QuadsAvx512,
    /// Small batches: transposes eight rows of weights, so that each has a lane.
    InterleavedAvx2,
    /// [`Kernel::InterleavedAvx2`] for sixteen rows, with AVX-512.
    InterleavedAvx512,
    /// GEMM: packs 32 rows of weights into a panel and multiplies it with tiles of sixteen rows of
    /// activations.
    GemmAvx2,
    /// [`Kernel::GemmAvx2`] with AVX-VNNI.
    GemmAvxVnni,
    /// [`Kernel::GemmAvx2`] with AVX-512.
    GemmAvx512,
    /// [`Kernel::GemmAvx2`] with AMX.
    GemmAmx,
    /// [`Kernel::DotScalar`] with NEON.
    DotNeon,
    /// [`Kernel::DotNeon`] with FEAT_DotProd.
    DotDotProd,
    /// GEMM: unpacks sixteen rows of weights and multiplies them, four at a time, with halves of
    /// such tiles, with NEON.
    GemmNeon,
    /// [`Kernel::GemmNeon`] with FEAT_DotProd.
    GemmDotProd,
}

impl Kernel {
    /// The kind and the instruction set.
    pub fn name(self) -> &'static str {
        self.described().0
    }

    /// The source file, in `crates/kernels/src/matmul`.
    pub fn file(self) -> &'static str {
        self.described().1
    }

    fn described(self) -> (&'static str, &'static str) {
        match self {
            Kernel::DotScalar => ("dot, scalar", "dot.rs"),
            Kernel::DotAvx2 => ("dot, avx2", "dot.rs"),
            Kernel::QuadsAvx2 => ("row quads, avx2", "small_batch/row_quads/avx2.rs"),
            Kernel::QuadsAvx512 => ("row quads, avx512", "small_batch/row_quads/avx512.rs"),
            Kernel::InterleavedAvx2 => ("row-interleaved, avx2", "small_batch/row_interleaved/avx2.rs"),
            Kernel::InterleavedAvx512 => ("row-interleaved, avx512", "small_batch/row_interleaved/avx512.rs"),
            Kernel::GemmAvx2 => ("gemm, avx2", "gemm/microkernel.rs"),
            Kernel::GemmAvxVnni => ("gemm, avxvnni", "gemm/microkernel.rs"),
            Kernel::GemmAvx512 => ("gemm, avx512", "gemm/microkernel.rs"),
            Kernel::GemmAmx => ("gemm, amx", "gemm/amx.rs"),
            Kernel::DotNeon => ("dot, neon", "dot.rs"),
            Kernel::DotDotProd => ("dot, dotprod", "dot.rs"),
            Kernel::GemmNeon => ("gemm, neon", "neon.rs"),
            Kernel::GemmDotProd => ("gemm, dotprod", "neon.rs"),
        }
    }

    /// Whether weights are packed into panels.
    pub(crate) fn is_gemm(self) -> bool {
        use Kernel::*;
        matches!(self, GemmAvx2 | GemmAvxVnni | GemmAvx512 | GemmAmx | GemmNeon | GemmDotProd)
    }
}

/// A line of the table.
pub(crate) struct Rule {
    isas: &'static [Level],
    formats: &'static [&'static [Format]],
    /// The numbers of rows of activations for which it applies.
    rows: RangeInclusive<usize>,
    /// The number of rows of weights must be a multiple of this.
    multiple: usize,
    /// The kernel that multiplies.
    pub kernel: Kernel,
    /// GEMM only: the kernel for a remainder of up to [`MAX_TAIL`] rows of activations, while
    /// weights are in the cache.
    tail: Option<Kernel>,
}

/// The most rows of activations for a [`Rule`]'s tail: with more, a tile is worthwhile.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // No kernel elsewhere has a tail.
pub(crate) const MAX_TAIL: usize = 8;

impl Rule {
    /// How many out of `rows` rows of activations `kernel` multiplies, and the kernel for the
    /// others.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // As above.
    pub(crate) fn split(&self, rows: usize) -> (usize, Option<Kernel>) {
        let rest = rows % TILE_ROWS;
        match self.tail {
            Some(tail) if (1..=MAX_TAIL).contains(&rest) => (rows - rest, Some(tail)),
            _ => (rows, None),
        }
    }
}

/// Formats with blocks of 32.
const BLOCKS: &[Format] =
    &[Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::MXFP4, Format::IQ4_NL];
/// Formats with super-blocks of 256.
const SUPER_BLOCKS: &[Format] = &[
    Format::Q2_K,
    Format::Q3_K,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::IQ4_XS,
    Format::IQ1_S,
    Format::IQ1_M,
    Format::IQ2_XXS,
    Format::IQ2_XS,
    Format::IQ2_S,
    Format::IQ3_XXS,
    Format::IQ3_S,
    Format::TQ1_0,
    Format::TQ2_0,
];
/// Formats that a GEMM packs.
const PACKED: &[&[Format]] = &[BLOCKS, SUPER_BLOCKS];
const ALL: &[&[Format]] = &[&Format::ALL];

/// No limit on rows.
const MANY: usize = usize::MAX;

const fn rule(
    isas: &'static [Level],
    formats: &'static [&'static [Format]],
    rows: RangeInclusive<usize>,
    multiple: usize,
    kernel: Kernel,
    tail: Option<Kernel>,
) -> Rule {
    Rule { isas, formats, rows, multiple, kernel, tail }
}

/// The rule for every CPU, at the end of each table.
pub(crate) const SCALAR: Rule = rule(&[Level::Scalar], ALL, 0..=MANY, 1, Kernel::DotScalar, None);

/// The table: the first matching rule applies.
///
/// A GEMM packs weights once for all rows of activations, which pays off from 9 to 21 rows on.
/// Transposing kernels read rows of weights in an order that doesn't pay off for single rows of
/// activations.
/// All limits are measured.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
static RULES: &[Rule] = &{
    use Format::{IQ4_NL, Q4_K, Q5_K, Q6_K, Q8_0};
    use Kernel::*;
    use Level::{Amx, Avx2, Avx512, AvxVnni};
    [
        //   instruction sets      formats                       rows of x  rows of w: a multiple of
        // These are multiplied as words instead of bytes, so that packing pays off later.
        rule(&[Avx2],              &[&[Q8_0, IQ4_NL]],             0..=20,   8, InterleavedAvx2,   None),
        rule(&[Avx2],              &[&[Q8_0, IQ4_NL]],             0..=20,   1, DotAvx2,           None),
        rule(&[Avx2, AvxVnni],     &[BLOCKS],                      0..=12,   8, InterleavedAvx2,   None),
        rule(&[Avx2, AvxVnni],     &[&[Q4_K]],                     4..=12,   8, InterleavedAvx2,   None),
        rule(&[Avx2, AvxVnni],     &[&[Q4_K, Q5_K, Q6_K]],         0..=12,   1, QuadsAvx2,         None),
        rule(&[Avx2],              PACKED,                        13..=MANY, 1, GemmAvx2,          None),
        rule(&[AvxVnni],           PACKED,                        13..=MANY, 1, GemmAvxVnni,       None),

        rule(&[Avx512, Amx],       &[&[Q8_0, Q4_K, Q5_K]],         2..=12,  16, InterleavedAvx512, None),
        rule(&[Avx512, Amx],       &[&[Q6_K]],                     4..=12,  16, InterleavedAvx512, None),
        rule(&[Avx512, Amx],       &[&[Q8_0, Q4_K, Q5_K, Q6_K]],   0..=12,   1, QuadsAvx512,       None),
        rule(&[Avx512, Amx],       &[BLOCKS],                      0..=8,    1, QuadsAvx512,       None),
        rule(&[Avx512],            &[&[Q8_0, Q4_K, Q5_K, Q6_K]],  13..=MANY, 16, GemmAvx512, Some(InterleavedAvx512)),
        // For a single tile of activations, filling AMX's registers takes longer than they save.
        rule(&[Amx],               PACKED,                        17..=MANY, 1, GemmAmx,           None),
        rule(&[Avx512, Amx],       PACKED,                         9..=MANY, 1, GemmAvx512,        None),

        rule(&[Avx2, AvxVnni, Avx512, Amx], ALL,                   0..=MANY, 1, DotAvx2,           None),
        SCALAR,
    ]
};
/// The table: the first matching rule applies.
///
/// A GEMM's limit is derived from instruction counts, not measured: using six of the eight rows of
/// activations in half a tile is worthwhile.
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
static RULES: &[Rule] = &{
    use Kernel::*;
    use Level::{DotProd, Neon};
    [
        //   instruction sets      formats                       rows of x  rows of w: a multiple of
        rule(&[Neon],              PACKED,                         6..=MANY, 1, GemmNeon,          None),
        rule(&[Neon],              ALL,                            0..=MANY, 1, DotNeon,           None),
        rule(&[DotProd],           PACKED,                         6..=MANY, 1, GemmDotProd,       None),
        rule(&[DotProd],           ALL,                            0..=MANY, 1, DotDotProd,        None),
        SCALAR,
    ]
};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static RULES: &[Rule] = &[SCALAR];

/// The rule for `weight_rows` rows of weights and `rows` rows of activations.
///
/// # Panics
/// If no rule matches, which the tests exclude.
pub(crate) fn choose(isa: Level, format: Format, rows: usize, weight_rows: usize) -> &'static Rule {
    let fits = |rule: &&Rule| {
        rule.isas.contains(&isa)
            && rule.rows.contains(&rows)
            && weight_rows.is_multiple_of(rule.multiple)
            && rule.formats.iter().any(|formats| formats.contains(&format))
    };
    match RULES.iter().find(fits) {
        Some(rule) => rule,
        None => unreachable!("no kernel for {} by {}", format.name(), isa.name()),
    }
}

/// The kernels for a format and an instruction set, for a range of numbers of rows of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    /// [`Isa::name`].
    pub isa: &'static str,
    /// The format of the weights.
    pub format: Format,
    /// Fewest rows of activations.
    pub from: usize,
    /// Most rows of activations; `None` if unlimited.
    pub to: Option<usize>,
    /// The kernel that multiplies.
    pub kernel: Kernel,
    /// For a GEMM, the kernel for a remainder of one to eight rows of activations.
    pub tail: Option<Kernel>,
    /// The entry applies if the number of rows of weights is a multiple of this.
    pub multiple: usize,
    /// The kernel otherwise.
    pub otherwise: Kernel,
}

/// The choice of [`matmul`](crate::matmul()) for every format, with one instruction set or (`None`)
/// all with kernels in this build.
/// Ranges of rows of activations are in order and contiguous.
pub fn kernel_plan(isa: Option<Isa>) -> Vec<PlanEntry> {
    // Beyond the limits of all rules.
    const LAST: usize = 64;
    let isas = Level::ALL.iter().filter(|level| isa.is_none_or(|isa| isa.level() == **level));
    let cases = isas.flat_map(|&isa| Format::ALL.map(|format| (isa, format)));
    let mut entries: Vec<PlanEntry> = Vec::new();
    for (isa, format) in cases {
        for rows in 1..=LAST {
            let (rule, other) = (choose(isa, format, rows, 0), choose(isa, format, rows, 1));
            let entry = PlanEntry {
                isa: isa.name(),
                format,
                from: rows,
                to: (rows < LAST).then_some(rows),
                kernel: rule.kernel,
                tail: rule.tail,
                multiple: rule.multiple,
                otherwise: other.kernel,
            };
            match entries.last_mut() {
                Some(last)
                    if (PlanEntry { from: last.from, ..entry }) == (PlanEntry { to: entry.to, ..*last }) =>
                {
                    last.to = entry.to;
                }
                _ => entries.push(entry),
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_has_a_kernel() {
        for entry in kernel_plan(None) {
            assert!(entry.from <= entry.to.unwrap_or(usize::MAX), "{entry:?}");
            assert!(!entry.kernel.is_gemm() || entry.format.block_len() >= 32, "{entry:?}");
        }
        for isa in Level::ALL {
            for format in Format::ALL {
                let rows: Vec<_> = kernel_plan(None)
                    .into_iter()
                    .filter(|e| e.isa == isa.name() && e.format == format)
                    .collect();
                assert_eq!((rows[0].from, rows[rows.len() - 1].to), (1, None), "{isa:?} {format:?}");
                assert!(rows.windows(2).all(|two| two[0].to == Some(two[1].from - 1)), "{isa:?} {format:?}");
            }
        }
    }

    #[test]
    fn only_a_short_remainder_is_a_tail() {
        let rule = rule(&[], ALL, 0..=MANY, 1, Kernel::GemmAvx512, Some(Kernel::InterleavedAvx512));
        let tails: Vec<_> = [16, 17, 24, 25, 31, 40].map(|rows| rule.split(rows).0).to_vec();
        assert_eq!(tails, [16, 16, 16, 25, 31, 32]);
        assert_eq!(SCALAR.split(17), (17, None));
    }
}
