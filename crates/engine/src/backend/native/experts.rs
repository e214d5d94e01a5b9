//! A layer of experts: rows are grouped by expert, so that an expert's weights are read once a step.

use alara_kernels as kernels;

use super::{Array, Native, Stack};
use crate::Result;
use crate::backend::{Backend, ExpertStacks, Routes};

/// A row and the place in `Routes` that asks for it.
type Pick = (u32, u32);

impl Native {
    /// As [`Backend::experts`].
    pub(super) fn run_experts(
        &mut self,
        x: &Array,
        routes: &Routes,
        stacks: &ExpertStacks<Stack, Vec<f32>>,
    ) -> Result<Array> {
        let places = routes.experts.len();
        let mut picks: Vec<Vec<Pick>> = vec![Vec::new(); stacks.gate.count()];
        for (place, &expert) in routes.experts.iter().enumerate() {
            picks[expert as usize].push(((place / routes.used) as u32, place as u32));
        }
        let mut gate = self.picked(x, &stacks.gate, &picks, places);
        add_bias(&mut gate, stacks.gate_bias.as_deref(), routes);
        let mut up = self.picked(x, &stacks.up, &picks, places);
        add_bias(&mut up, stacks.up_bias.as_deref(), routes);
        let hidden = self.gated(&gate, up, stacks.activation)?;
        for (row, place) in picks.iter_mut().flatten() {
            *row = *place;
        }
        let mut each = self.picked(&hidden, &stacks.down, &picks, places);
        add_bias(&mut each, stacks.down_bias.as_deref(), routes);

        let mut y = self.arena.array(x.rows(), x.width());
        y.numbers_mut().fill(0.0);
        let results = each.numbers().chunks_exact(x.width()).zip(&routes.weights);
        for (place, (result, &weight)) in results.enumerate() {
            let start = place / routes.used * x.width();
            for (y, value) in y.numbers_mut()[start..].iter_mut().zip(result) {
                *y += weight * value;
            }
        }
        Ok(y)
    }

    /// Rows of `x` by the experts that they are picked for. `[places, out]`
    fn picked(&mut self, x: &Array, stack: &Stack, picks: &[Vec<Pick>], places: usize) -> Array {
        let mut y = self.arena.array(places, stack.out());
        self.prepare(x, stack.format(), x.width());
        for (expert, picks) in picks.iter().enumerate().filter(|(_, picks)| !picks.is_empty()) {
            kernels::matmul_picked(&self.cpu, stack.rows(expert), &mut self.activations, picks, y.numbers_mut());
        }
        y
    }
}

fn add_bias(y: &mut Array, bias: Option<&[f32]>, routes: &Routes) {
    let Some(bias) = bias else { return };
    let width = y.width();
    for (row, &expert) in y.numbers_mut().chunks_exact_mut(width).zip(&routes.experts) {
        let bias = &bias[expert as usize * width..][..width];
        row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
    }
}
