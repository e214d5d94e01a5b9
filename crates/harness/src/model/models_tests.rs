use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Weak};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::Scripted;

fn spec(name: &str) -> ModelSpec {
    ModelSpec { model: Some(name.to_owned()), ..ModelSpec::default() }
}

/// The memory as the loader sees it.
#[derive(Default)]
struct Memory {
    live: Mutex<Vec<(u64, Weak<dyn ChatModel>)>>,
    loads: AtomicUsize,
    most: Mutex<u64>,
}

impl Memory {
    fn bytes(&self) -> u64 {
        let live = self.live.lock().unwrap();
        live.iter().filter(|(_, model)| model.strong_count() > 0).map(|(bytes, _)| bytes).sum()
    }

    fn load(&self, bytes: u64) -> Arc<dyn ChatModel> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let model: Arc<dyn ChatModel> = Arc::new(Scripted::default());
        self.live.lock().unwrap().push((bytes, Arc::downgrade(&model)));
        let mut most = self.most.lock().unwrap();
        *most = self.bytes().max(*most);
        model
    }
}

/// Models named by their sizes, after a letter.
fn models(memory: &Arc<Memory>, budget: Option<u64>, pause: Duration) -> Models {
    let memory = memory.clone();
    Models::new(budget, move |spec| {
        let name = spec.model.as_deref().unwrap_or_default();
        let bytes = name[1..].parse().map_err(ModelError::new)?;
        let memory = memory.clone();
        let load = move || {
            std::thread::sleep(pause);
            Ok(memory.load(bytes))
        };
        Ok(Candidate { bytes, load: Box::new(load) })
    })
}

#[test]
fn the_least_recently_used_goes_first() {
    let memory = Arc::new(Memory::default());
    let models = models(&memory, Some(10 << 20), Duration::ZERO);
    let check = |name: &str, loads: usize, bytes: u64| {
        models.model(&spec(name)).unwrap();
        assert_eq!((memory.loads.load(Ordering::Relaxed), memory.bytes()), (loads, bytes), "{name}");
    };
    check("a4194304", 1, 4 << 20);
    check("b4194304", 2, 8 << 20);
    check("a4194304", 2, 8 << 20);
    // b goes, a stays.
    check("c4194304", 3, 8 << 20);
    check("a4194304", 3, 8 << 20);
    // A remote model takes no memory.
    check("d0", 4, 8 << 20);
    check("e10485760", 5, 10 << 20);
    check("d0", 5, 10 << 20);

    let held = models.model(&spec("e10485760")).unwrap();
    let message = |name: &str| models.model(&spec(name)).err().unwrap().to_string();
    assert_eq!(
        message("a4194304"),
        "a4194304 does not fit the memory budget: it takes 4.0 MiB of 10.0 MiB, and 10.0 MiB are held by models at work (e10485760)"
    );
    drop(held);
    assert_eq!(
        message("f11534336"),
        "f11534336 does not fit the memory budget: it takes 11.0 MiB of 10.0 MiB"
    );
    assert_eq!(models.bytes(), 10 << 20, "nothing goes in vain");
    assert_eq!(message("gx"), "invalid digit found in string");
    check("a4194304", 6, 4 << 20);
}

#[test]
fn a_model_is_unloaded_unless_it_is_at_work() {
    let memory = Arc::new(Memory::default());
    let models = models(&memory, Some(10), Duration::ZERO);
    let loaded = || -> Vec<(String, u64, bool)> {
        let loaded = models.loaded().into_iter();
        loaded.map(|loaded| (loaded.spec.to_string(), loaded.bytes, loaded.busy)).collect()
    };
    assert!(loaded().is_empty() && !models.unload(&spec("a4")));
    let held = models.model(&spec("a4")).unwrap();
    drop(models.model(&spec("b5")).unwrap());
    assert_eq!(loaded(), [("a4".to_owned(), 4, true), ("b5".to_owned(), 5, false)]);
    let used = models.loaded()[1].used;
    drop(models.model(&spec("b5")).unwrap());
    let again = &models.loaded()[1];
    assert!(again.used > used && again.since.elapsed().unwrap() < Duration::from_secs(60));
    assert!(!models.unload(&spec("a4")) && models.unload(&spec("b5")) && !models.unload(&spec("b5")));
    assert_eq!((loaded(), memory.bytes()), (vec![("a4".to_owned(), 4, true)], 4));
    drop(held);
    assert!(models.unload(&spec("a4")));
    assert_eq!((models.bytes(), memory.bytes()), (0, 0));
    // And can be loaded again.
    models.model(&spec("a4")).unwrap();
    assert_eq!(memory.loads.load(Ordering::Relaxed), 3);
}

#[test]
fn one_load_serves_all_that_wait_for_it() {
    let memory = Arc::new(Memory::default());
    let models = models(&memory, Some(10), Duration::from_millis(20));
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (models, start) = (&models, &start);
            scope.spawn(move || {
                start.wait();
                models.model(&spec(["a4", "b5"][thread % 2])).unwrap();
            });
        }
    });
    assert_eq!(memory.loads.load(Ordering::Relaxed), 2);
}

#[test]
fn a_load_that_fails_keeps_nobody_waiting() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let models = Models::new(Some(10), move |_| {
        let load = match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(ModelError::new("no")),
            _ => Ok(Arc::new(Scripted::default()) as Arc<dyn ChatModel>),
        };
        Ok(Candidate { bytes: 8, load: Box::new(|| load) })
    });
    assert_eq!(models.model(&spec("a")).err().unwrap().to_string(), "no");
    assert_eq!(models.bytes(), 0);
    models.model(&spec("a")).unwrap();
    assert_eq!((models.bytes(), tries.load(Ordering::Relaxed)), (8, 2));
}

#[test]
fn a_load_that_panics_keeps_nobody_waiting() {
    let tries = AtomicUsize::new(0);
    let models = Models::new(None, move |_| {
        assert!(tries.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        Ok(Candidate { bytes: 0, load: Box::new(|| Ok(Arc::new(Scripted::default()))) })
    });
    let panicked = std::thread::scope(|scope| scope.spawn(|| models.model(&spec("a")).is_ok()).join());
    assert!(panicked.is_err());
    models.model(&spec("a")).unwrap();
}

#[test]
fn many_threads_stay_within_the_budget() {
    let memory = Arc::new(Memory::default());
    let models = models(&memory, Some(10), Duration::from_millis(1));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let models = &models;
            scope.spawn(move || {
                for turn in 0..30 {
                    let name = ["a3", "b4", "c2", "d5"][(thread + turn * (thread + 1)) % 4];
                    // Whether it fits depends on who holds which model at the moment.
                    drop(models.model(&spec(name)));
                }
            });
        }
    });
    assert!(*memory.most.lock().unwrap() <= 10, "{}", memory.most.lock().unwrap());
}

proptest! {
    /// Compares with a list that is maintained in the simplest way.
    #[test]
    fn as_a_plain_list_does_it(
        sizes in prop::collection::vec(0..8_u64, 1..6),
        steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        const BUDGET: u64 = 10;
        let memory = Arc::new(Memory::default());
        let models = models(&memory, Some(BUDGET), Duration::ZERO);
        let mut held: HashMap<usize, Arc<dyn ChatModel>> = HashMap::new();
        // The models that should be loaded, the latest request last.
        let mut loaded: Vec<usize> = Vec::new();
        let mut loads = 0;
        for (index, hold) in steps {
            let which = index.index(sizes.len());
            let sum = |list: &[usize]| list.iter().map(|&at| sizes[at]).sum::<u64>();
            let fits = match loaded.iter().position(|&at| at == which) {
                Some(at) => { loaded.remove(at); true }
                None => {
                    let busy: Vec<usize> = held.keys().copied().collect();
                    let fits = sum(&busy) + sizes[which] <= BUDGET;
                    while fits && sum(&loaded) + sizes[which] > BUDGET {
                        let idle = |at: &usize| !held.contains_key(at) && sizes[*at] > 0;
                        let oldest = loaded.iter().position(idle).unwrap();
                        loaded.remove(oldest);
                    }
                    loads += usize::from(fits);
                    fits
                }
            };
            let got = models.model(&spec(&format!("{}{}", (b'a' + which as u8) as char, sizes[which])));
            prop_assert_eq!(got.is_ok(), fits);
            if let Ok(model) = got {
                loaded.push(which);
                if let Some(before) = held.get(&which) {
                    prop_assert!(Arc::ptr_eq(before, &model));
                }
                match hold {
                    true => held.insert(which, model),
                    false => held.remove(&which),
                };
            }
            prop_assert_eq!(memory.loads.load(Ordering::Relaxed), loads);
            prop_assert_eq!(memory.bytes(), sum(&loaded));
            prop_assert_eq!(models.bytes(), sum(&loaded));
        }
        prop_assert!(*memory.most.lock().unwrap() <= BUDGET);
    }
}
