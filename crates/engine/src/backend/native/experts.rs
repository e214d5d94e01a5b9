//! A layer of experts: rows are grouped by expert, so that an expert's weights are read once a
//! step.

use std::ops::Range;

use alara_kernels::{self as kernels, Product};

use super::{Array, Native, Stack};
use crate::Result;
use crate::backend::{Backend, ExpertStacks, Routes};

/// The places in [`Routes`], those of one expert after those of another.
struct Grouped {
    /// The places.
    places: Vec<u32>,
    /// Where each place is in `places`.
    at: Vec<u32>,
    /// The expert of each of `places`.
    experts: Vec<u32>,
    /// Each expert that is used, and its range of `places`.
    groups: Vec<(usize, Range<usize>)>,
}

impl Grouped {
    fn new(routes: &Routes) -> Self {
        let mut places: Vec<u32> = (0..routes.experts.len() as u32).collect();
        places.sort_unstable_by_key(|&place| (routes.experts[place as usize], place));
        let experts: Vec<u32> = places.iter().map(|&place| routes.experts[place as usize]).collect();
        let mut at = vec![0; places.len()];
        for (i, &place) in places.iter().enumerate() {
            at[place as usize] = i as u32;
        }
        let mut groups = Vec::new();
        let mut start = 0;
        for group in experts.chunk_by(|a, b| a == b) {
            groups.push((group[0] as usize, start..start + group.len()));
            start += group.len();
        }
        Grouped { places, at, experts, groups }
    }

    /// The products of experts with the rows that are meant for them: row `rows[i]` for place `i`
    /// of `places`.
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
        routes: &Routes,
        stacks: &ExpertStacks<&Stack, &Vec<f32>>,
    ) -> Result<Array> {
        let stack_of_up = stacks.up.expect("matrices are joined for backends that want it, and this doesn't");
        let grouped = Grouped::new(routes);
        let count = routes.experts.len();
        let rows: Vec<u32> = grouped.places.iter().map(|&place| place / routes.used as u32).collect();
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
        // To multiply what comes of a row, before there is a bias, is to multiply the row.
        let mut weights = &routes.weights;
        let ones;
        if routes.weigh_input {
            let factors: Vec<f32> = grouped.places.iter().map(|&at| routes.weights[at as usize]).collect();
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
