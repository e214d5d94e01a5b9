//! The fixed order in which floats are summed.

/// Number of lanes that accumulate floats: term i goes to lane i % 8.
pub(crate) const LANES: usize = 8;

/// The sum of eight lanes, in the order in which registers are halved.
#[inline(always)]
pub(crate) fn sum(lane: [f32; LANES]) -> f32 {
    ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))
}
