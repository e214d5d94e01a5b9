//! Benchmarks the overhead of the sandbox: `true` alone and in the sandbox.

use std::process::Command;
use std::time::Duration;

use alara_harness::sandbox::{Isolation, Policy, Sandbox, Script, enter};
use criterion::Criterion;

fn main() {
    // The launcher is this very program.
    enter();
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("true/plain", |bencher| {
        bencher.iter(|| assert!(Command::new("true").status().is_ok_and(|status| status.success())));
    });
    for (name, isolation) in [("true/no isolation", Isolation::Off), ("true/sandbox", Isolation::Auto)] {
        let policy = Policy { isolation, ..Policy::default() };
        let Ok(sandbox) = Sandbox::new(&std::env::temp_dir(), policy) else { continue };
        let timeout = Duration::from_secs(10);
        let program: &[&str] = &["true"];
        let script = Script::new(program, timeout);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| assert!(sandbox.run(&script).is_ok_and(|output| output.exit == Some(0))));
        });
    }
    criterion.final_summary();
}
