//! The gated delta rule with its convolution, over the rows of several sequences.

use alara_kernels::{DeltaForm, DeltaShape};

use crate::params::{Field, params};
use crate::{Array, Device, Error, Launch, Memory, Params, Result};

/// Columns of a state per thread block; as in `kernels/delta.cu`.
const COLUMNS: usize = 32;

/// Rows whose keys and queries are fetched together; as in `kernels/delta.cu`.
const AHEAD: usize = 8;

/// Rows per chunk in the chunked form; as in `kernels/delta.cu`.
pub const CHUNK: usize = 16;

impl Field for DeltaShape {
    fn put(&self, params: &mut Params) {
        let DeltaShape { key_heads, value_heads, grouped, key_width, value_width, kernel, epsilon } = *self;
        [key_heads, value_heads, usize::from(grouped), key_width, value_width, kernel]
            .iter()
            .for_each(|&size| (size as u32).put(params));
        epsilon.put(params);
    }
}

/// A sequence's state in a layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeltaState {
    /// `[value_heads, key_width, value_width]`
    pub state: Array,
    /// The last rows before the convolution, oldest first.
    /// `[kernel - 1, channels]`
    pub history: Array,
}

/// Rows of one sequence; they follow the rows of the span before.
#[derive(Clone, Debug)]
pub struct DeltaSpan {
    /// The number of rows.
    pub rows: usize,
    /// The state before; empty arrays at a sequence's beginning.
    pub before: DeltaState,
    /// Where to write the state: after how many rows, ascending, and to which memory.
    /// The last entry is the span's end.
    /// `before` is not modified.
    pub saves: Vec<(usize, DeltaState)>,
}

/// The inputs of the rule.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInput {
    /// Before the convolution.
    /// `[T, channels]`
    pub qkv: Array,
    /// Before the sigmoid.
    /// `[T, value_heads]`
    pub beta: Array,
    /// Before the softplus.
    /// `[T, value_heads]`
    pub alpha: Array,
    /// The convolution; the last tap is the current row's.
    /// `[channels, kernel]`
    pub conv: Array,
    /// Multiplies the decay's softplus.
    /// `[value_heads]`
    pub a: Array,
    /// Added to `alpha`.
    /// `[value_heads]`
    pub dt: Array,
}

/// The name of a form's kernel, and the bytes of shared memory that it needs for keys of `width`.
fn kernel(form: DeltaForm, width: usize) -> (&'static str, usize) {
    match form {
        DeltaForm::Recurrent => ("alara_delta", 4 * 2 * AHEAD * width),
        // Keys and queries, padded by one number; two triangles; rates and decays; the columns'
        // inputs.
        DeltaForm::Chunked => ("alara_delta_chunks", 4 * CHUNK * (2 * (width + 1) + 2 * CHUNK + 4 + COLUMNS)),
    }
}

/// Convolves each sequence's rows and applies the rule to its state.
/// `y: [T, value_heads * value_width]`.
/// Both forms give equal results up to rounding.
///
/// # Errors
/// If there is no kernel for the shape, lengths don't match, saves are unordered, or the device
/// fails.
pub fn delta<D: Device>(
    device: &D,
    shape: &DeltaShape,
    form: DeltaForm,
    spans: &[DeltaSpan],
    input: &DeltaInput,
    y: Array,
) -> Result<()> {
    let refuse = |message| Err(Error::Shape { operation: "delta rule", message });
    let held = match shape.key_width.div_ceil(4) {
        0 | 65.. => return refuse(format!("keys of {}", shape.key_width)),
        1..=8 => 8,
        9..=16 => 16,
        17..=32 => 32,
        _ => 64,
    };
    let (mut span_words, mut save_words, mut span_of) = (Params::default(), Params::default(), Vec::new());
    let mut saves = 0u32;
    for (nth, span) in spans.iter().enumerate() {
        let mut ends = span.saves.iter().map(|(rows, _)| *rows);
        if !ends.clone().is_sorted() || ends.next_back() != Some(span.rows) {
            return refuse(format!("saves of span {nth} don't ascend to its end"));
        }
        [span.before.state, span.before.history].iter().for_each(|array| array.put(&mut span_words));
        let count = span.saves.len() as u32;
        [span_of.len() as u32, span.rows as u32, saves, count]
            .iter()
            .for_each(|field| field.put(&mut span_words));
        for (rows, to) in &span.saves {
            [to.state, to.history].iter().for_each(|array| array.put(&mut save_words));
            [*rows as u32, 0].iter().for_each(|field| field.put(&mut save_words));
        }
        saves += count;
        span_of.extend(std::iter::repeat_n(nth as u32, span.rows));
    }
    if span_of.is_empty() {
        return Ok(());
    }
    let (rows, channels) = (span_of.len(), shape.channels());
    let DeltaShape { value_heads, value_width, kernel: taps, .. } = *shape;
    let lengths = [
        (input.qkv, rows * channels),
        (input.beta, rows * value_heads),
        (input.alpha, rows * value_heads),
        (input.conv, channels * taps),
        (input.a, value_heads),
        (input.dt, value_heads),
        (y, rows * value_heads * value_width),
    ];
    if let Some((array, wanted)) = lengths.iter().find(|(array, len)| array.len as usize != *len) {
        return refuse(format!("{} numbers where {rows} rows have {wanted}", array.len));
    }
    let halves =
        |words: &Params| words.words().iter().flat_map(|&word| [word as u32, (word >> 32) as u32]).collect();
    let numbers = [halves(&span_words), halves(&save_words), span_of].concat();
    let tables = device.upload(&numbers)?;
    let of_spans = Array { address: tables.address(), len: spans.len() as u64 };
    let of_saves = Array { address: of_spans.address + 48 * of_spans.len, len: u64::from(saves) };
    let of_rows = Array { address: of_saves.address + 40 * of_saves.len, len: rows as u64 };
    let convolved = device.alloc(4 * rows * channels)?;
    let convolved = Array { address: convolved.address(), len: (rows * channels) as u64 };
    device.launch(&Launch {
        kernel: "alara_delta_convolve".into(),
        grid: [rows as u32, (2 * shape.key_heads + shape.value_heads) as u32, 1],
        threads: 128,
        shared: 0,
        params: params![input.qkv, input.conv, convolved, of_spans, of_rows, *shape],
    })?;
    if shape.kernel > 1 {
        device.launch(&Launch {
            kernel: "alara_delta_history".into(),
            grid: [spans.len() as u32, channels.div_ceil(256) as u32, 1],
            threads: 256,
            shared: 0,
            params: params![input.qkv, of_spans, of_saves, shape.kernel as u32, channels as u32],
        })?;
    }
    let DeltaInput { beta, alpha, a, dt, .. } = *input;
    let (kernel, shared) = kernel(form, shape.key_width);
    device.launch(&Launch {
        kernel: format!("{kernel}_{held}"),
        grid: [spans.len() as u32, shape.value_heads as u32, shape.value_width.div_ceil(COLUMNS) as u32],
        threads: 128,
        shared: shared as u32,
        params: params![convolved, beta, alpha, a, dt, y, of_spans, of_saves, *shape],
    })
}
