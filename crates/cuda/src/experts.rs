//! A layer of experts: which of them a row uses, whose rows are whose, and the sum of what they
//! give.
//! The host is asked nothing.

use crate::matmul::SIDE;
use crate::params::params;
use crate::{Array, Device, Error, Launch, Result, SHARED};

/// How experts are scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// By the softmax over all.
    Softmax,
    /// By the sigmoid of each.
    Sigmoid,
    /// By the logits; those chosen share a softmax.
    SoftmaxOfChosen,
    /// By the logits; of those chosen the sigmoid of each.
    SigmoidOfChosen,
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Experts there are.
    pub count: usize,
    /// Experts that a row uses.
    pub used: usize,
    /// Equal groups that they are in, neighbours together, and of how many of these a row's are
    /// taken.
    /// These are the groups whose two best are the best together.
    /// `(1, 1)`: of all.
    pub groups: (usize, usize),
    /// How they are scored.
    pub score: Score,
    /// Whether the weights of a row are made to sum to one.
    pub normalise: bool,
    /// Multiplies the weights.
    pub scale: f32,
}

/// The experts of every row, best first, the lower number of equal ones.
/// `logits: [T, count]`; `bias: [count]` is added for the choice alone, or empty; `experts` and
/// `weights`: `[T, used]`.
///
/// # Errors
/// If there are too many experts for a block's shared memory, or too few in the groups that are
/// taken, or the device fails.
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

/// Tiles that `places` rows of `count` experts take at most.
pub fn max_tiles(places: usize, count: usize) -> usize {
    places / SIDE + count.min(places)
}

/// Sorts places by their expert: `experts: [places]`, each below `count`; `order: [places]`,
/// `tiles`: [`max_tiles`] of sixteen bytes.
///
/// # Errors
/// If there are too many experts for the shared memory of a block, or the device fails.
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

/// `y[t] = Σ weights[t, n] x[t * used + n]`, in the order of n.
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
