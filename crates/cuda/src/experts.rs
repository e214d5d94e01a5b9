//! A layer of experts: selects the experts of each row, groups rows by expert, and sums the
//! results.
//! Everything stays on the device.

use crate::matmul::SIDE;
use crate::params::params;
use crate::{Array, Device, Error, Launch, Result, SHARED};

/// How experts are scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all logits.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
    /// Selects by the logits; softmax over the chosen ones.
    SoftmaxOfChosen,
    /// Selects by the logits; sigmoid of each chosen one.
    SigmoidOfChosen,
}

/// How experts are chosen and weighted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Number of experts.
    pub count: usize,
    /// Number of experts per row.
    pub used: usize,
    /// Number of equal groups of neighboring experts, and number of groups from which a row's
    /// experts are chosen.
    /// A group's score is the sum of its two best experts.
    /// `(1, 1)`: no groups.
    pub groups: (usize, usize),
    /// How they are scored.
    pub score: Score,
    /// Whether the weights of a row are normalized to sum 1.
    pub normalise: bool,
    /// Multiplies the weights.
    pub scale: f32,
}

/// The experts of every row, best first, equal ones by number.
/// `logits: [T, count]`; `bias: [count]` is only added for the choice, or empty; `experts` and
/// `weights`: `[T, used]`.
///
/// # Errors
/// If there are too many experts for a thread block's shared memory, or too few in the chosen
/// groups, or the device fails.
pub fn route<D: Device>(
    device: &D,
    router: &Router,
    logits: Array,
    bias: Array,
    experts: Array,
    weights: Array,
) -> Result<()> {
    let Router { count, used, groups: (groups, taken), score, normalise, scale } = *router;
    let shared = 12 * count + 8 * groups;
    let grouped = groups > 0 && count.is_multiple_of(groups) && taken <= groups;
    if count == 0 || !grouped || used > taken * (count / groups) || shared > SHARED as usize {
        let message = format!("{used} of {count} experts, of {taken} of {groups} groups");
        return Err(Error::Shape { operation: "routing", message });
    }
    let score: u32 = match score {
        Score::Softmax => 0,
        Score::Sigmoid => 1,
        Score::SoftmaxOfChosen => 2,
        Score::SigmoidOfChosen => 3,
    };
    let (count, used, groups, taken) = (count as u32, used as u32, groups as u32, taken as u32);
    device.launch(&Launch {
        kernel: "alara_route".into(),
        grid: [(logits.len / u64::from(count)) as u32, 1, 1],
        threads: 32,
        shared: shared as u32,
        params: params![
            logits,
            bias,
            experts,
            weights,
            count,
            used,
            score,
            u32::from(normalise),
            scale,
            groups,
            taken,
            0u32
        ],
    })
}

/// The most tiles that `places` rows of `count` experts can take.
pub fn max_tiles(places: usize, count: usize) -> usize {
    places / SIDE + count.min(places)
}

/// Sorts places by their expert: `experts: [places]`, each below `count`; `order: [places]`,
/// `tiles`: [`max_tiles`] of sixteen bytes.
///
/// # Errors
/// If there are too many experts for a thread block's shared memory, or the device fails.
pub fn bucket<D: Device>(device: &D, count: usize, experts: Array, order: Array, tiles: Array) -> Result<()> {
    let shared = 8 * (count + 1);
    if count == 0 || shared > SHARED as usize || (tiles.len as usize) < max_tiles(experts.len as usize, count)
    {
        let message = format!("{count} experts, {} tiles", tiles.len);
        return Err(Error::Shape { operation: "sorting by expert", message });
    }
    device.launch(&Launch {
        kernel: "alara_bucket".into(),
        grid: [1; 3],
        threads: count.next_multiple_of(32).min(1024) as u32,
        shared: shared as u32,
        params: params![experts, order, tiles, count as u32, SIDE as u32],
    })
}

/// `y[t] = Σ weights[t, n] x[t * used + n]`, in ascending order of n.
/// `x: [T * used, width]`, `y: [T, width]`
///
/// # Errors
/// If the device fails.
pub fn weigh<D: Device>(device: &D, x: Array, weights: Array, used: usize, y: Array) -> Result<()> {
    let rows = weights.len as usize / used.max(1);
    let width = y.len as usize / rows.max(1);
    if rows == 0 || rows * used != weights.len as usize || (rows * used * width) as u64 != x.len {
        let message = format!("{} weights, {used} a row, for {} numbers", weights.len, x.len);
        return Err(Error::Shape { operation: "sum of experts", message });
    }
    device.launch(&Launch {
        kernel: "alara_weigh".into(),
        grid: [rows as u32, width.div_ceil(256) as u32, 1],
        threads: 256,
        shared: 0,
        params: params![x, weights, y, used as u32, width as u32],
    })
}
