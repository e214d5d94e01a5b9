//! A layer of experts: gathers rows by expert, multiplies them by the expert's matrices together,
//! and sums the results row by row.

use std::collections::BTreeMap;

use candle_core::{Result, Tensor};

use super::{TensorMatrix, gated, weights};
use crate::backend::{ExpertStacks, Routing};

/// `x: [T, D]`, `logits: [T, experts]` -> `[T, D]`
pub fn experts(
    x: &Tensor,
    logits: &Tensor,
    routing: &Routing<&Tensor>,
    stacks: &ExpertStacks<&Vec<TensorMatrix>, &Tensor>,
) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(y) = super::cuda::experts(x, logits, routing, stacks)? {
        return Ok(y);
    }
    let numbers = |of: Option<&Tensor>| of.map_or(Ok(Vec::new()), Tensor::to_vec1);
    let (bias, scales) = (numbers(routing.bias)?, numbers(routing.scales)?);
    let routed = routing.route(&logits.flatten_all()?.to_vec1()?, &bias, &scales);
    let (device, used) = (x.device(), routed.used);
    // For each expert, in ascending order: the indices in `routed` that select it.
    let mut places: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (place, &expert) in routed.experts.iter().enumerate() {
        places.entry(expert).or_default().push(place as u32);
    }
    let mut given = Vec::with_capacity(places.len());
    let mut row_of = vec![0; routed.experts.len()];
    let mut next = 0;
    for (expert, places) in &places {
        let rows: Vec<u32> = places.iter().map(|place| place / used as u32).collect();
        let weights: Vec<f32> = places.iter().map(|&place| routed.weights[place as usize]).collect();
        let weights = Tensor::from_vec(weights, (places.len(), 1), device)?;
        let mut x = x.index_select(&Tensor::new(rows, device)?, 0)?;
        if routed.weigh_input {
            x = x.broadcast_mul(&weights)?;
        }
        let y = expert_of(&x, *expert as usize, stacks)?;
        given.push(if routed.weigh_input { y } else { y.broadcast_mul(&weights)? });
        for &place in places {
            row_of[place as usize] = next;
            next += 1;
        }
    }
    let given = Tensor::cat(&given, 0)?;
    let mut sum: Option<Tensor> = None;
    for nth in 0..used {
        // The nth expert of each row.
        // Summed in this order, so that a row's sum doesn't depend on other rows.
        let rows: Vec<u32> = row_of.iter().skip(nth).step_by(used).copied().collect();
        let nth = given.index_select(&Tensor::new(rows, device)?, 0)?;
        sum = Some(match sum {
            Some(sum) => (sum + nth)?,
            None => nth,
        });
    }
    sum.map_or_else(|| x.zeros_like(), Ok)
}

/// The result of expert number `at` for `x`.
fn expert_of(x: &Tensor, at: usize, stacks: &ExpertStacks<&Vec<TensorMatrix>, &Tensor>) -> Result<Tensor> {
    let apply = |x: &Tensor, stack: &[TensorMatrix], bias: Option<&Tensor>| {
        let y = weights::product_of(stack, at, x)?;
        match bias {
            Some(bias) => y.broadcast_add(&bias.narrow(0, at * y.dim(1)?, y.dim(1)?)?),
            None => Ok(y),
        }
    };
    let gate = apply(x, stacks.gate, stacks.gate_bias)?;
    let (gate, up) = match stacks.up {
        Some(up) => (gate, apply(x, up, stacks.up_bias)?),
        None => {
            let hidden = gate.dim(1)? / 2;
            (gate.narrow(1, 0, hidden)?, gate.narrow(1, hidden, hidden)?)
        }
    };
    apply(&gated(&gate, &up, stacks.activation)?, stacks.down, stacks.down_bias)
}
