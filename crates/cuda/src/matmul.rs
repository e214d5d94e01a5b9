//! Products of quantized weights with rows of activations, dense or by experts.

use alara_kernels::Format;

use crate::params::{Field, params};
use crate::{Array, Device, Error, Launch, Memory, Params, Result};

/// Up to this many rows a product is a small batch: weights are read once for up to eight rows, and
/// sums are exact integers.
/// Larger products are a GEMM with tiles of halves.
pub const SMALL_BATCH: usize = 16;

/// Rows and columns of a tile; as in `kernels/matmul.cu`.
pub(crate) const SIDE: usize = 64;

/// Distance between rows of a tile in halves, and in floats; as in `kernels/matmul.cu`.
const STRIDES: (usize, usize) = (72, SIDE + 4);

/// Weight rows per block in small batches; as in `kernels/matmul.cu`.
const WARPS: usize = 4;

/// Whether there are kernels for a weight format: true for all but floats.
pub const fn multiplies(format: Format) -> bool {
    !matches!(format, Format::F32 | Format::F16 | Format::BF16)
}

/// Weight matrices in device memory, which is allocated up to the next multiple of four bytes.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// The storage format.
    pub format: Format,
    /// `[out, width]`, or `[experts, stack, width]`.
    pub bytes: Array,
    /// Numbers per row.
    pub width: usize,
    /// Number of rows used, per expert.
    pub out: usize,
    /// The first row used, per expert.
    pub first: usize,
    /// Rows per expert; unused without experts.
    pub stack: usize,
}

/// Assigns rows of outputs to experts.
#[derive(Clone, Copy, Debug)]
pub struct Grouped {
    /// The expert of every place.
    /// `[places]`
    pub experts: Array,
    /// Number of experts.
    pub count: usize,
    /// The places sorted by expert, and their tiles, from [`crate::bucket`]; not needed for few
    /// places.
    pub buckets: Option<[Array; 2]>,
}

/// The operands of a product besides weights.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// `[rows, width]`
    pub x: Array,
    /// Number of output rows that share a row of `x`.
    pub shared: usize,
    /// `[out]`, or `[experts, out]`; or empty.
    pub bias: Array,
    /// `[rows * shared, out]`
    pub y: Array,
}

/// Assigns rows to weights; `Places` of the kernel.
struct Places {
    experts: Array,
    stack: u32,
    first: u32,
    count: u32,
    shared: u32,
}

impl Field for Places {
    fn put(&self, params: &mut Params) {
        self.experts.put(params);
        [self.stack, self.first, self.count, self.shared].iter().for_each(|field| field.put(params));
    }
}

/// Whether there is a kernel for rows of this kind.
fn takes(w: &Weights) -> bool {
    multiplies(w.format) && w.width > 0 && w.format.row_bytes(w.width).is_some()
}

/// `y[i, o] = w[o] · x[i / shared] + bias[o]`, with the weights of place i's expert, if there are
/// experts.
///
/// # Errors
/// If widths don't match, or the device fails.
pub fn matmul<D: Device>(
    device: &D,
    w: &Weights,
    operands: &Operands,
    grouped: Option<&Grouped>,
) -> Result<()> {
    let Operands { x, shared, bias, y } = *operands;
    let refuse = |message| Err(Error::Shape { operation: "matmul", message });
    if !takes(w) {
        return refuse(format!("rows of {} numbers in {}", w.width, w.format.name()));
    }
    let rows = x.len as usize / w.width;
    let count = rows * shared;
    if !x.len.is_multiple_of(w.width as u64) || y.len as usize != count * w.out {
        return refuse(format!("{} activations of {} into {} outputs of {}", x.len, w.width, y.len, w.out));
    }
    if count == 0 {
        return Ok(());
    }
    let places = Places {
        experts: grouped.map_or(Array::default(), |grouped| grouped.experts),
        stack: w.stack as u32,
        first: w.first as u32,
        count: count as u32,
        shared: shared as u32,
    };
    let (out, sub_blocks) = (w.out as u32, (w.width / 32) as u32);
    let buckets = grouped.and_then(|grouped| grouped.buckets);
    if count <= SMALL_BATCH || grouped.is_some() && buckets.is_none() {
        let quantized = device.alloc(40 * rows * sub_blocks as usize)?;
        let quantized = Array { address: quantized.address(), len: (rows * sub_blocks as usize) as u64 };
        quantize(device, x, quantized, rows as u32, sub_blocks)?;
        let together =
            if grouped.is_some() { 1 } else { [1, 4, 8][usize::from(count > 1) + usize::from(count > 4)] };
        return device.launch(&Launch {
            kernel: format!("alara_small_batch_{}_{together}", w.format.name()),
            grid: [w.out.div_ceil(WARPS) as u32, count.div_ceil(together) as u32, 1],
            threads: 32 * WARPS as u32,
            shared: 0,
            params: params![w.bytes, quantized, bias, y, places, out, sub_blocks],
        });
    }
    let scales = device.alloc(4 * rows)?;
    let scales = Array { address: scales.address(), len: rows as u64 };
    device.launch(&Launch {
        kernel: "alara_row_scales".into(),
        grid: [rows as u32, 1, 1],
        threads: 256,
        shared: 0,
        params: params![x, scales, w.width as u32, 0u32],
    })?;
    let [order, tiles] = buckets.unwrap_or_default();
    let columns = if grouped.is_some() { tiles.len as usize } else { count.div_ceil(SIDE) };
    device.launch(&Launch {
        kernel: format!("alara_gemm_{}", w.format.name()),
        grid: [w.out.div_ceil(SIDE) as u32, columns as u32, 1],
        threads: 128,
        shared: (2 * 2 * SIDE * STRIDES.0).max(4 * SIDE * STRIDES.1) as u32,
        params: params![w.bytes, x, scales, bias, order, tiles, y, places, out, sub_blocks],
    })
}

fn quantize<D: Device>(device: &D, x: Array, to: Array, rows: u32, sub_blocks: u32) -> Result<()> {
    device.launch(&Launch {
        kernel: "alara_quantize".into(),
        grid: [rows, sub_blocks.div_ceil(8), 1],
        threads: 256,
        shared: 0,
        params: params![x, to, sub_blocks, 0u32],
    })
}

/// Dequantizes the rows `rows` of `w`: `y: [rows, width]`.
///
/// # Errors
/// If the width doesn't match, or the device fails.
pub fn widen<D: Device>(device: &D, w: &Weights, rows: Array, y: Array) -> Result<()> {
    if !takes(w) || y.len != rows.len * w.width as u64 {
        let message = format!("{} rows of {} numbers in {}", rows.len, w.width, w.format.name());
        return Err(Error::Shape { operation: "widen", message });
    }
    device.launch(&Launch {
        kernel: format!("alara_widen_{}", w.format.name()),
        grid: [rows.len as u32, 1, 1],
        threads: 128,
        shared: 0,
        params: params![w.bytes, rows, y, (w.width / 32) as u32, 0u32],
    })
}
