//! Products of weight matrices with rows of activations.
#![allow(unsafe_code)]

mod dot;
#[cfg(target_arch = "x86_64")]
mod gemm;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plan;
mod small_batch;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(target_arch = "x86_64")]
pub(crate) use gemm::amx::{ROUND_OPERATIONS as AMX_ROUND_OPERATIONS, round as amx_round};
pub use plan::{Kernel, PlanEntry, kernel_plan};
#[cfg(target_arch = "x86_64")]
pub(crate) use vector::{Avx2, Avx512, AvxVnni, Vector};

use crate::activations::Activations;
use crate::thread_pool::Disjoint;
use crate::{Cpu, Format};
use plan::{Rule, SCALAR};
use small_batch::SmallBatch;

/// A matrix of weights `[out, width]`.
#[derive(Clone, Copy)]
pub struct WeightMatrix<'a> {
    /// The storage format.
    pub format: Format,
    /// The concatenated rows, at any address.
    pub bytes: &'a [u8],
    /// Numbers per row: whole blocks.
    pub width: usize,
}

impl WeightMatrix<'_> {
    /// The number of rows.
    ///
    /// # Panics
    /// Unless the bytes are a whole number of rows.
    pub fn rows(&self) -> usize {
        let row =
            self.format.row_bytes(self.width).filter(|&row| row > 0 && self.bytes.len().is_multiple_of(row));
        match row {
            Some(row) => self.bytes.len() / row,
            None => panic!(
                "{} bytes as rows of {} numbers in {}",
                self.bytes.len(),
                self.width,
                self.format.name()
            ),
        }
    }
}

/// A matrix of weights times rows of activations.
pub struct Product<'a> {
    w: WeightMatrix<'a>,
    /// Rows of weights.
    out: usize,
    /// The rows of activations to use; `None` = all.
    row_ids: Option<&'a [u32]>,
    y: Disjoint<'a, f32>,
    /// The length of `y`.
    len: usize,
    /// The kernel that multiplies.
    rule: &'static Rule,
}

impl<'a> Product<'a> {
    /// `y[i, o] = w[o] . x[i]`, for `y` of `[x.rows(), w.rows()]`.
    pub fn new(w: WeightMatrix<'a>, y: &'a mut [f32]) -> Self {
        Product { w, out: w.rows(), row_ids: None, len: y.len(), y: Disjoint::new(y), rule: &SCALAR }
    }

    /// `y[i, o] = w[o] . x[rows[i]]`, for `y` of `[rows, w.rows()]`.
    pub fn of_rows(w: WeightMatrix<'a>, rows: &'a [u32], y: &'a mut [f32]) -> Self {
        Product { row_ids: Some(rows), ..Product::new(w, y) }
    }
}

/// Computes several products with the same activations, all at once.
///
/// # Panics
/// If shapes differ, a row is out of range, or `x` was prepared for another form of weights.
pub fn matmul(cpu: &Cpu, x: &mut Activations, products: &mut [Product]) {
    for product in products.iter_mut() {
        let Product { w, out, row_ids, len, .. } = *product;
        assert!(x.suits(w.format), "activations were prepared for other weights than {}", w.format.name());
        assert_eq!(x.width(), w.width, "width of activations and weights");
        if let Some(rows) = row_ids {
            let most = rows.iter().copied().max().map_or(0, |row| row as usize + 1);
            assert!(most <= x.rows(), "row {} of {} of activations", most - 1, x.rows());
        }
        let x_rows = product.x_rows(x);
        assert_eq!(len, x_rows * out, "outputs of a matmul");
        product.rule = plan::choose(cpu.isa.level(), w.format, x_rows, out);
    }
    // Nothing else may write these outputs meanwhile; the products' outputs are disjoint.
    let products = &*products;
    #[cfg(target_arch = "x86_64")]
    for product in products.iter().filter(|product| product.len > 0) {
        if product.rule.kernel.is_gemm() {
            gemm::multiply(cpu, product, x);
        } else {
            x.arrange(small_batch::layout(product.rule.kernel, product.w.format));
        }
    }
    #[cfg(target_arch = "aarch64")]
    for product in products.iter().filter(|product| product.len > 0 && product.rule.kernel.is_gemm()) {
        neon::multiply(cpu, product, x);
    }
    small_batches(cpu, x, products);
}

/// Bytes of weights per task: few enough that threads finish together and that they stay in the
/// cache for all rows of activations.
const TASK_BYTES: usize = 32 << 10;
/// Rows of weights in a task are a multiple of this, so that they are whole groups of every kernel.
const GROUP: usize = 16;

impl Product<'_> {
    /// The number of rows of activations.
    fn x_rows(&self, x: &Activations) -> usize {
        self.row_ids.map_or(x.rows(), <[u32]>::len)
    }

    /// Rows of weights per task in a small batch.
    fn task_rows(&self) -> usize {
        let rows = TASK_BYTES * self.out / self.w.bytes.len().max(1);
        rows.next_multiple_of(GROUP).clamp(GROUP, 64)
    }

    /// The number of tasks of a small batch; 0 for a GEMM.
    fn tasks(&self, x: &Activations) -> usize {
        if self.x_rows(x) == 0 || self.rule.kernel.is_gemm() {
            0
        } else {
            self.out.div_ceil(self.task_rows())
        }
    }
}

/// Computes all products that are small batches together.
fn small_batches(cpu: &Cpu, x: &Activations, products: &[Product]) {
    let tasks = products.iter().map(|product| product.tasks(x)).sum();
    cpu.threads.run(tasks, &|task| {
        let mut task = task;
        for product in products {
            let tasks = product.tasks(x);
            if task >= tasks {
                task -= tasks;
                continue;
            }
            let Product { w, out, row_ids, ref y, rule, .. } = *product;
            let (task_rows, row_bytes) = (product.task_rows(), w.bytes.len() / out);
            let p = SmallBatch {
                w: w.bytes,
                row_bytes,
                weight_rows: out,
                x,
                row_ids,
                before: 0,
                rows: product.x_rows(x),
                y,
                column: 0,
                stride: out,
            };
            let rows = task * task_rows..((task + 1) * task_rows).min(out);
            // SAFETY: the kernel belongs to `isa`, whose value proves that the CPU supports it.
            // Tasks have disjoint rows of weights.
            unsafe { small_batch::multiply(rule.kernel, p, w.format, rows) };
            return;
        }
    });
}

#[cfg(test)]
mod tests;
