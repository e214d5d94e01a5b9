//! A layer of experts: rows are grouped by expert, so that each expert's weights are read once per
//! step.

use std::ops::Range;

use alara_kernels::{self as kernels, Product};

use super::{Array, Native, Stack};
use crate::Result;
use crate::backend::{Backend, ExpertStacks, RoutedExperts};

/// The indices in [`RoutedExperts`], grouped by expert.
struct Grouped {
    indices: Vec<u32>,
    /// Where each index is in `indices`.
    at: Vec<u32>,
    /// The expert of each of `indices`.
    experts: Vec<u32>,
    /// Each used expert, and its range of `indices`.
    groups: Vec<(usize, Range<usize>)>,
}

impl Grouped {
    fn new(routed: &RoutedExperts) -> Self {
        let mut indices: Vec<u32> = (0..routed.experts.len() as u32).collect();
        indices.sort_unstable_by_key(|&index| (routed.experts[index as usize], index));
        let experts: Vec<u32> = indices.iter().map(|&index| routed.experts[index as usize]).collect();
        let mut at = vec![0; indices.len()];
        for (i, &index) in indices.iter().enumerate() {
            at[index as usize] = i as u32;
        }
        let mut groups = Vec::new();
        let mut start = 0;
        for group in experts.chunk_by(|a, b| a == b) {
            groups.push((group[0] as usize, start..start + group.len()));
            start += group.len();
        }
        Grouped { indices, at, experts, groups }
    }

    /// The products of experts with their rows: index `i` of `indices` uses row `rows[i]`.
    fn products<'a>(&self, stack: &'a Stack, rows: &'a [u32], y: &'a mut Array) -> Vec<Product<'a>> {
        let mut rest = y.numbers_mut();
        let products = self.groups.iter().map(|(expert, range)| {
            let (y, later) = std::mem::take(&mut rest).split_at_mut(range.len() * stack.out());
            rest = later;
            Product::of_rows(stack.rows(*expert), &rows[range.clone()], y)
        });
        products.collect()
    }
}

impl Native {
    /// As [`Backend::experts`].
    pub(super) fn run_experts(
        &mut self,
        x: &Array,
        routed: &RoutedExperts,
        stacks: &ExpertStacks<&Stack, &Vec<f32>>,
    ) -> Result<Array> {
        let stack_of_up = stacks.up.expect("matrices are joined for backends that want it, and this doesn't");
        let grouped = Grouped::new(routed);
        let count = routed.experts.len();
        let rows: Vec<u32> = grouped.indices.iter().map(|&index| index / routed.used as u32).collect();
        let mut gate = self.arena.array(count, stacks.gate.out());
        let mut up = self.arena.array(count, stack_of_up.out());
        let mut products = grouped.products(stacks.gate, &rows, &mut gate);
        let mut of_up = grouped.products(stack_of_up, &rows, &mut up);
        self.prepare(x, stacks.gate.format(), x.width());
        if self.activations.suits(stack_of_up.format()) {
            products.extend(of_up);
            kernels::matmul(&self.cpu, &mut self.activations, &mut products);
        } else {
            kernels::matmul(&self.cpu, &mut self.activations, &mut products);
            self.prepare(x, stack_of_up.format(), x.width());
            kernels::matmul(&self.cpu, &mut self.activations, &mut of_up);
        }
        drop(products);
        // Without a bias, weighting the result equals weighting the input row.
        let mut weights = &routed.weights;
        let ones;
        if routed.weigh_input {
            let factors: Vec<f32> = grouped.indices.iter().map(|&at| routed.weights[at as usize]).collect();
            for y in [&mut gate, &mut up] {
                let width = y.width();
                kernels::scale_rows(&self.cpu, y.numbers_mut(), width, &factors);
            }
            ones = vec![1.0; count];
            weights = &ones;
        }
        let bias = |native: &Native, y: &mut Array, bias: Option<&Vec<f32>>| {
            if let Some(bias) = bias {
                kernels::add_rows(&native.cpu, y.numbers_mut(), bias, &grouped.experts);
            }
        };
        bias(self, &mut gate, stacks.gate_bias);
        bias(self, &mut up, stacks.up_bias);
        let hidden = self.gated(&gate, up, stacks.activation)?;

        let own: Vec<u32> = (0..count as u32).collect();
        let mut each = self.arena.array(count, x.width());
        self.prepare(&hidden, stacks.down.format(), hidden.width());
        let mut products = grouped.products(stacks.down, &own, &mut each);
        kernels::matmul(&self.cpu, &mut self.activations, &mut products);
        drop(products);
        bias(self, &mut each, stacks.down_bias);

        let mut y = self.arena.array(x.rows(), x.width());
        kernels::weigh_rows(&self.cpu, each.numbers(), x.width(), &grouped.at, weights, y.numbers_mut());
        Ok(y)
    }
}
