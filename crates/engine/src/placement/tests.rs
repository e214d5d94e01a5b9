//! Tests the decision alone, with arbitrary numbers, and with those of tiny models of every kind.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::memory::MemoryShare;

const GIB: u64 = 1 << 30;

fn share() -> impl Strategy<Value = MemoryShare> {
    (0..GIB, 0..2 * GIB, 0..GIB, 0..GIB).prop_map(|(weights, on_gpu, kv, state)| MemoryShare {
        weights,
        on_gpu,
        kv,
        state,
    })
}

prop_compose! {
    fn breakdown()(blocks in prop::collection::vec(share(), 1..40), output in share(), scratch in 0..GIB, scores in 0..GIB) -> MemoryBreakdown {
        let all = || blocks.iter().chain([&output]);
        let whole = MemoryEstimate {
            weights: all().map(|share| share.weights).sum(),
            kv: all().map(|share| share.kv).sum(),
            state: all().map(|share| share.state).sum(),
            working: GIB,
        };
        MemoryBreakdown { whole, blocks, output, scratch, scores }
    }
}

proptest! {
    #[test]
    fn what_is_placed_never_exceeds_the_budget(
        breakdown in breakdown(), budget in 0..60 * GIB, asked in prop::option::of(0usize..60)
    ) {
        let of = breakdown.blocks.len();
        match breakdown.place(budget, asked) {
            Ok(placed) => {
                prop_assert!(placed.gpu.total() <= budget);
                // The requested number is placed, and no layer is lost.
                prop_assert_eq!(asked.map_or(placed.layers, |asked| asked.min(of)), placed.layers);
                prop_assert_eq!(placed.of, of);
                prop_assert_eq!(placed.host.working, breakdown.whole.working);
                let there: u64 = breakdown.blocks[of - placed.layers..].iter().map(|block| block.kv).sum();
                prop_assert_eq!(placed.gpu.kv, there);
                let output = if placed.layers > 0 { breakdown.output.kv } else { 0 };
                prop_assert_eq!(placed.host.kv + placed.gpu.kv + output, breakdown.whole.kv);
            }
            Err(refusal) => {
                prop_assert!(refusal.needs.total() > budget && refusal.layers > refusal.fit);
                // The number that it reports as fitting does fit.
                prop_assert!(refusal.fit == 0 || breakdown.place(budget, Some(refusal.fit)).is_ok());
            }
        }
    }

    #[test]
    fn more_memory_never_holds_less(breakdown in breakdown(), less in 0..60 * GIB, more in 0..60 * GIB) {
        let (less, more) = (less.min(more), less.max(more));
        let fit = |budget| breakdown.place(budget, None).map_or(0, |placed| placed.layers);
        prop_assert!(fit(less) <= fit(more));
        // One more than fits doesn't.
        let fits = fit(less);
        prop_assert!(fits == breakdown.blocks.len() || breakdown.place(less, Some(fits + 1)).is_err());
    }
}

fn of(case: &str, context: usize) -> MemoryBreakdown {
    let path = format!("{}/../../tests/fixtures/arch/{case}/model.gguf", env!("CARGO_MANIFEST_DIR"));
    MemoryBreakdown::of(&Gguf::open(Path::new(&path)).unwrap(), context, KvType::F16).unwrap()
}

#[test]
fn the_parts_are_the_whole() {
    for case in [
        "qwen3-exact",
        "gemma3-exact",
        "deepseek2-glm47flash-exact",
        "qwen35moe-fused-gate-up-exact",
        "gpt-oss-mxfp4-f32",
    ] {
        let breakdown = of(case, 256);
        let all = breakdown.place(u64::MAX, None).unwrap();
        assert_eq!(all.layers, breakdown.blocks.len(), "{case}");
        // The host only holds the table's rows and working memory.
        assert_eq!((all.host.kv, all.host.state), (0, 0), "{case}");
        assert_eq!((all.gpu.kv, all.gpu.state), (breakdown.whole.kv, breakdown.whole.state), "{case}");
        let blocks: u64 = breakdown.blocks.iter().map(|block| block.weights).sum();
        assert_eq!(breakdown.whole.weights, blocks + breakdown.output.weights + all.host.weights, "{case}");
        assert!(all.gpu.weights >= blocks + breakdown.output.weights, "{case}: floats are no smaller in f32");
        assert!(
            breakdown.blocks.iter().all(|block| block.on_gpu > 0 && block.kv + block.state > 0),
            "{case}"
        );
    }
}

#[test]
fn a_refusal_tells_the_numbers() {
    let breakdown = of("qwen3-exact", 256);
    let of = breakdown.blocks.len();
    let check = |budget: u64, asked, expected: &str| {
        let message = breakdown.place(budget, asked).unwrap_err().message(256);
        assert!(message.starts_with("on the GPU ") && message.contains(expected), "{message}");
    };
    let one = breakdown.gpu(1).total();
    check(one - 1, None, &format!("even one of the {of} layers takes {}", breakdown.gpu(1)));
    check(one - 1, None, "can be had; take a smaller context (--ctx), keep keys and values in eight bits");
    check(one, Some(99), &format!("all {of} layers take "));
    check(one, Some(2), "can be had; 1 of them fit (--gpu-layers 1, or auto)");
    assert_eq!(breakdown.place(0, Some(0)).unwrap().host, breakdown.whole, "nothing there needs nothing");
}
