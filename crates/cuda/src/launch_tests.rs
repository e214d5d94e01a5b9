//! What launches ask for, for the shapes of real models: no more than any device of compute capability 7.5 to 12.0 gives.

use std::cell::RefCell;

use crate::*;

/// Computes nothing and looks at launches.
#[derive(Default)]
struct Watcher {
    launches: RefCell<Vec<Launch>>,
}

/// Memory that is nowhere.
struct Nowhere;

impl Memory for Nowhere {
    fn address(&self) -> u64 {
        1 << 40
    }
}

impl Device for Watcher {
    type Memory = Nowhere;

    fn room(&self, _bytes: usize) -> Result<Nowhere> {
        Ok(Nowhere)
    }

    fn upload(&self, _numbers: &[u32]) -> Result<Nowhere> {
        Ok(Nowhere)
    }

    fn launch(&self, launch: &Launch) -> Result<()> {
        if let Some(excess) = launch.excess() {
            panic!("{excess}");
        }
        self.launches.borrow_mut().push(launch.clone());
        Ok(())
    }
}

/// Name; D, F, V; H, K, key and value widths, window; experts, used, their F; delta's key and value heads.
type Model = (&'static str, [usize; 3], [usize; 5], [usize; 3], [usize; 2]);

/// Sizes of published models, as their files' metadata have them. GLM-4.7-Flash in the absorbed form.
#[rustfmt::skip]
const MODELS: [Model; 12] = [
    ("Qwen3 0.6B",      [1024, 3072, 151_936],  [16, 8, 128, 128, 0],   [0, 0, 0],      [0, 0]),
    ("Qwen3 8B",        [4096, 12288, 151_936], [32, 8, 128, 128, 0],   [0, 0, 0],      [0, 0]),
    ("Qwen3 30B-A3B",   [2048, 768, 151_936],   [32, 4, 128, 128, 0],   [128, 8, 768],  [0, 0]),
    ("Qwen3.5 0.8B",    [1024, 3584, 248_320],  [8, 2, 256, 256, 0],    [0, 0, 0],      [16, 16]),
    ("Qwen3.5 35B-A3B", [2048, 512, 248_320],   [16, 2, 256, 256, 0],   [256, 8, 512],  [16, 32]),
    ("GLM-4.7-Flash",   [2048, 10240, 154_880], [20, 1, 576, 512, 0],   [64, 4, 1536],  [0, 0]),
    ("GPT-OSS 20B",     [2880, 2880, 201_088],  [64, 8, 64, 64, 128],   [32, 4, 2880],  [0, 0]),
    ("Gemma 3 12B",     [3840, 15360, 262_144], [16, 8, 256, 256, 1024], [0, 0, 0],     [0, 0]),
    ("Gemma 3 27B",     [5376, 21504, 262_144], [32, 16, 128, 128, 1024], [0, 0, 0],    [0, 0]),
    ("Mistral 3.2 24B", [5120, 32768, 131_072], [32, 8, 128, 128, 0],   [0, 0, 0],      [0, 0]),
    ("Phi-4 14B",       [5120, 17920, 100_352], [40, 10, 128, 128, 0],  [0, 0, 0],      [0, 0]),
    ("OLMo 2 13B",      [5120, 13824, 100_352], [40, 40, 128, 128, 0],  [0, 0, 0],      [0, 0]),
];

fn numbers(len: usize) -> Array {
    Array { address: 1 << 40, len: len as u64 }
}

/// Some sequences that decode far from their beginning, and one that prefills.
const STEPS: [&[(usize, usize)]; 4] =
    [&[(0, 1)], &[(100_000, 1); 16], &[(0, 2048)], &[(30_000, 512), (5000, 5)]];

fn attends(
    watcher: &Watcher,
    [heads, kv_heads, key_width, value_width, window]: [usize; 5],
    rows: &[(usize, usize)],
) {
    let blocks: Vec<u32> = (0..8192).collect();
    let spans: Vec<AttendSpan> =
        rows.iter().map(|&(past, rows)| AttendSpan { rows, past, blocks: &blocks }).collect();
    for kind in [Kind::F32, Kind::F16, Kind::Q8_0] {
        let shape = AttendShape {
            heads,
            kv_heads,
            key_width,
            value_width,
            values_in_keys: key_width == 576,
            scale: 1.0,
            window: (window > 0).then_some(window),
            block_tokens: 32,
            kind,
        };
        let plan = AttendPlan::new(&shape, &spans).unwrap();
        let tables = plan.upload(watcher, &shape).unwrap();
        let kept = [Kept::default(); 2];
        let rows = plan.rows();
        append(watcher, kind, &tables, numbers(rows * kv_heads * key_width), kv_heads * key_width, kept[0])
            .unwrap();
        let (q, y) = (numbers(rows * heads * key_width), numbers(rows * heads * value_width));
        attend(watcher, &shape, &tables, q, Array::default(), kept, y).unwrap();
        let heads = Heads {
            heads,
            kv_heads,
            key_width,
            value_width,
            norms: Default::default(),
            epsilon: 1e-6,
            angles: Default::default(),
            half: key_width / 2,
            adjacent: false,
        };
        prepare(watcher, &heads, kind, &tables, [q; 3], kept, y).unwrap();
    }
}

fn multiplies(watcher: &Watcher, out: usize, width: usize, rows: usize) {
    for format in Format::ALL.into_iter().filter(|format| format.row_bytes(width).is_some()) {
        let w = Weights { format, bytes: numbers(1), width, out, first: 0, stack: out };
        let operands =
            Operands { x: numbers(rows * width), shared: 1, bias: numbers(0), y: numbers(rows * out) };
        matmul(watcher, &w, &operands, None).unwrap();
        widen(watcher, &w, numbers(rows), numbers(rows * width)).unwrap();
    }
}

fn uses_experts(watcher: &Watcher, width: usize, [count, used, hidden]: [usize; 3], rows: usize) {
    let router = Router { count, used, score: Score::Softmax, normalise: true, scale: 1.0 };
    let places = rows * used;
    route(watcher, &router, numbers(rows * count), numbers(0), numbers(places), numbers(places)).unwrap();
    let tiles = numbers(most_tiles(places, count));
    bucket(watcher, count, numbers(places), numbers(places), tiles).unwrap();
    let buckets = (places > FEW).then_some([numbers(places), tiles]);
    let grouped = Grouped { experts: numbers(places), count, buckets };
    let w = Weights { format: Format::MXFP4, bytes: numbers(1), width, out: hidden, first: 0, stack: hidden };
    let operands =
        Operands { x: numbers(rows * width), shared: used, bias: numbers(0), y: numbers(places * hidden) };
    matmul(watcher, &w, &operands, Some(&grouped)).unwrap();
    weigh(watcher, numbers(places * width), numbers(places), used, numbers(rows * width)).unwrap();
}

fn remembers(watcher: &Watcher, [key_heads, value_heads]: [usize; 2], rows: &[(usize, usize)]) {
    let shape =
        DeltaShape { key_heads, value_heads, key_width: 128, value_width: 128, kernel: 4, epsilon: 1e-6 };
    let spans: Vec<DeltaSpan> = (rows.iter())
        .map(|&(_, rows)| DeltaSpan { rows, before: Known::default(), saves: vec![(rows, Known::default())] })
        .collect();
    let any = numbers(1);
    let input = DeltaInput { qkv: any, beta: any, alpha: any, conv: any, a: any, dt: any };
    delta(watcher, &shape, &spans, &input, any).unwrap();
}

#[test]
fn every_device_takes_the_launches_of_real_models() {
    let watcher = Watcher::default();
    for (_, [width, hidden, vocabulary], attention, experts, delta) in MODELS {
        for step in STEPS {
            let rows = step.iter().map(|(_, rows)| rows).sum();
            attends(&watcher, attention, step);
            multiplies(&watcher, hidden, width, rows);
            multiplies(&watcher, width, hidden, rows);
            add_norm(
                &watcher,
                [numbers(rows * width), numbers(0)],
                numbers(width),
                1e-6,
                [numbers(0), numbers(rows * width)],
            )
            .unwrap();
            gated(
                &watcher,
                numbers(rows * hidden),
                numbers(rows * hidden),
                numbers(rows * hidden),
                Gate::Silu,
            )
            .unwrap();
            if experts[0] > 0 {
                uses_experts(&watcher, width, experts, rows);
            }
            if delta[0] > 0 {
                remembers(&watcher, delta, step);
            }
        }
        multiplies(&watcher, vocabulary, width, 16);
        candidates(&watcher, numbers(vocabulary), numbers(vocabulary / 32), numbers(40), numbers(40))
            .unwrap();
    }
    let launches = watcher.launches.borrow();
    assert!(launches.len() > 1000);
    // Nothing asks for more than its kernel's parameter space of 4 KiB.
    assert!(launches.iter().all(|launch| launch.params.words().len() < 512));
}

#[test]
fn too_much_is_told() {
    let launch =
        Launch { kernel: "k".into(), grid: [1; 3], threads: 128, shared: 0, params: Params::default() };
    assert_eq!(launch.excess(), None);
    let told = |launch: Launch| launch.excess().unwrap();
    assert_eq!(told(Launch { threads: 1056, ..launch.clone() }), "k: 1056 threads in a block");
    assert_eq!(told(Launch { threads: 100, ..launch.clone() }), "k: 100 threads in a block");
    assert_eq!(told(Launch { grid: [1, 65536, 1], ..launch.clone() }), "k: a grid of [1, 65536, 1]");
    assert_eq!(told(Launch { grid: [0, 1, 1], ..launch.clone() }), "k: a grid of [0, 1, 1]");
    assert_eq!(told(Launch { shared: SHARED + 1, ..launch }), "k: 49153 bytes of shared memory");
}
