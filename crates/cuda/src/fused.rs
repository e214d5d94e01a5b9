//! The operations between products: sums and norms, activations, and the preparation of queries,
//! keys and values for attention.

use alara_kernels::{Gate, KvFormat};

use crate::attend::{KvArrays, Tables, kv_name};
use crate::params::params;
use crate::{Array, Device, Error, Launch, Result, SHARED};

/// `y = weight (x + more) / sqrt(mean((x + more)²) + epsilon)` of every group of `weight.len`
/// numbers, and `sum = x + more`; `more` may be empty, and `sum` too.
/// `quants` is `y` [quantized](quantize), or empty.
///
/// # Errors
/// If lengths don't match, or the device fails.
pub fn add_norm<D: Device>(
    device: &D,
    [x, more]: [Array; 2],
    weight: Array,
    epsilon: f32,
    [sum, y]: [Array; 2],
    quants: Array,
) -> Result<()> {
    let rows = y.len / weight.len.max(1);
    let fits = |array: Array| array.len == 0 || array.len == y.len;
    if rows == 0
        || rows * weight.len != y.len
        || x.len != y.len
        || !fits(more)
        || !fits(sum)
        || !are_quants(quants, weight.len, y.len)
    {
        let message = format!("{} numbers in blocks of {}", x.len, weight.len);
        return Err(Error::Shape { operation: "norm", message });
    }
    device.launch(&Launch {
        kernel: "alara_norm".into(),
        grid: [rows as u32, 1, 1],
        threads: weight.len.next_multiple_of(32).min(NORM_THREADS) as u32,
        shared: 0,
        params: params![x, more, weight, sum, y, quants, weight.len as u32, epsilon],
    })
}

/// The most threads of a block that normalizes a row; as in `kernels/fused.cu`.
const NORM_THREADS: u64 = 1024;

/// Numbers that are quantized together.
pub const BLOCK: usize = 32;

/// Bytes of a quantized block: a scale and the sum as halves, and 32 quants.
pub const Q8_1_BYTES: usize = 36;

/// Whether `quants` has room for `len` numbers in rows of `width`, or is empty.
fn are_quants(quants: Array, width: u64, len: u64) -> bool {
    let block = BLOCK as u64;
    quants.len == 0 || width.is_multiple_of(block) && quants.len == len / block
}

/// Quantizes activations to the form of candle's small-batch kernels (Q8_1).
/// `x: [rows, width]`, `quants: [rows, width / 32]`
///
/// # Errors
/// If lengths don't match, or the device fails.
pub fn quantize<D: Device>(device: &D, x: Array, width: usize, quants: Array) -> Result<()> {
    if x.len == 0 || quants.len == 0 || !are_quants(quants, width as u64, x.len) {
        let message = format!("{} numbers in rows of {width}, {} blocks", x.len, quants.len);
        return Err(Error::Shape { operation: "quantize", message });
    }
    device.launch(&Launch {
        kernel: "alara_quantize_q8_1".into(),
        grid: [x.len.div_ceil(256) as u32, 1, 1],
        threads: 256,
        shared: 0,
        params: params![x, quants],
    })
}

/// Heads per thread block.
const WARPS: usize = 4;

/// Rows of numbers that needn't be contiguous, such as a part of each row of a wider array.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The memory from the first number of the first row to the last of the last.
    pub numbers: Array,
    /// Numbers per row.
    pub width: usize,
    /// Distance between rows, in numbers.
    pub step: usize,
}

impl Rows {
    /// Whether these are exactly `rows` rows.
    fn are(&self, rows: usize) -> bool {
        let Rows { numbers, width, step } = *self;
        rows > 0 && width > 0 && width <= step && numbers.len as usize == (rows - 1) * step + width
    }
}

/// `y = act(gate) up`.
/// `up`: `[rows, width]`; `gate` likewise, or `[rows, 1]`; `y: [rows, width]`.
/// `quants` is `y` [quantized](quantize), or empty.
///
/// # Errors
/// If lengths don't match, or the device fails.
pub fn gated<D: Device>(
    device: &D,
    [gate, up]: [Rows; 2],
    y: Array,
    quants: Array,
    kind: Gate,
) -> Result<()> {
    let rows = y.len as usize / up.width.max(1);
    let shared = up.width.is_multiple_of(gate.width.max(1));
    if !(gate.are(rows) && up.are(rows) && shared)
        || rows * up.width != y.len as usize
        || !are_quants(quants, up.width as u64, y.len)
    {
        let message = format!("rows of {} of a gate, of {} numbers, into {}", gate.width, up.width, y.len);
        return Err(Error::Shape { operation: "gate", message });
    }
    let activation: u32 = match kind {
        Gate::Silu => 0,
        Gate::GeluTanh => 1,
        Gate::Sigmoid => 2,
        Gate::ClampedSwiglu => 3,
    };
    device.launch(&Launch {
        kernel: "alara_gated".into(),
        grid: [y.len.div_ceil(256) as u32, 1, 1],
        threads: 256,
        shared: 0,
        params: params![
            gate.numbers,
            up.numbers,
            y,
            quants,
            gate.step as u32,
            up.step as u32,
            up.width as u32,
            (up.width / gate.width) as u32,
            activation,
            0u32,
        ],
    })
}

/// How heads of queries and keys are prepared.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Numbers of a query and of a key.
    pub key_width: usize,
    /// Numbers of a value.
    pub value_width: usize,
    /// Weights of the norms over heads of queries and of keys, `[key_width]` each; empty = none.
    pub norms: [Array; 2],
    /// The epsilon of the norms.
    pub epsilon: f32,
    /// Cosines and sines, `[T, half]` each; empty = no rotation.
    pub angles: [Array; 2],
    /// Number of rotated pairs: the first `2 * half` numbers of a head.
    pub half: usize,
    /// Whether pairs are neighbors; otherwise they are `half` apart.
    pub adjacent: bool,
}

impl Heads {
    /// Whether there is a kernel for these heads: they must consist of whole blocks of 32 if keys
    /// are quantized, and fit into shared memory.
    pub fn fit(&self, kind: KvFormat) -> bool {
        let Heads { key_width, value_width, half, .. } = *self;
        let blocks = key_width.is_multiple_of(32) && value_width.is_multiple_of(32);
        (kind != KvFormat::Q8_0 || blocks)
            && 4 * WARPS * key_width <= SHARED as usize
            && 2 * half <= key_width
    }
}

/// Normalizes and rotates queries and keys, writes keys and values to their slots, and returns the
/// queries, in one launch.
/// `q`, `y`: `[T, H * key_width]`, `k: [T, K * key_width]`, `v: [T, K * value_width]`, empty if
/// values are part of the keys.
///
/// # Errors
/// If heads don't [fit](Heads::fit), lengths don't match, or the device fails.
pub fn prepare<D: Device>(
    device: &D,
    shape: &Heads,
    kind: KvFormat,
    tables: &Tables<D::Memory>,
    [q, k, v]: [Array; 3],
    [keys, values]: [KvArrays; 2],
    y: Array,
) -> Result<()> {
    let Heads { heads, kv_heads, key_width, value_width, .. } = *shape;
    let ([q_norm, k_norm], [cos, sin]) = (shape.norms, shape.angles);
    let refuse = |message| Err(Error::Shape { operation: "queries and keys", message });
    if !shape.fit(kind) {
        return refuse(format!("heads of {key_width} and {value_width}, of which {} turn", 2 * shape.half));
    }
    let rows = tables.slots().len as usize;
    let as_long = |array: Array, len: usize| array.len as usize == rows * len;
    let norms = [q_norm, k_norm].iter().all(|norm| norm.len == 0 || norm.len as usize == key_width);
    if !(as_long(q, heads * key_width) && as_long(k, kv_heads * key_width) && as_long(y, heads * key_width))
        || !(v.len == 0 || as_long(v, kv_heads * value_width))
        || !(as_long(cos, shape.half) && as_long(sin, shape.half) && norms)
    {
        return refuse(format!(
            "{} of queries, {} of keys, {} of values in {rows} rows",
            q.len, k.len, v.len
        ));
    }
    let slots = tables.slots();
    device.launch(&Launch {
        kernel: format!("alara_prepare_{}", kv_name(kind)),
        grid: [slots.len as u32, (heads + 2 * kv_heads).div_ceil(WARPS) as u32, 1],
        threads: 32 * WARPS as u32,
        shared: (4 * WARPS * key_width) as u32,
        params: params![
            q,
            k,
            v,
            q_norm,
            k_norm,
            cos,
            sin,
            slots,
            keys,
            values,
            y,
            heads as u32,
            kv_heads as u32,
            key_width as u32,
            value_width as u32,
            shape.half as u32,
            u32::from(shape.adjacent),
            shape.epsilon,
            0u32,
        ],
    })
}
