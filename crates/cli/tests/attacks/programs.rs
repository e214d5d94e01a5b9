//! Attacks by programs on the sandbox: the table of `alara doctor --attack`.

use alara_harness::sandbox::attack::{Came, attacks};
use alara_harness::sandbox::{Enforced, Isolation};
use serde_json::Value;

use crate::dirs::text;
use crate::sandbox::needs;

/// The result of an attack without isolation, if it doesn't get through.
/// The first ones fail even without isolation, the others depend on user and machine.
const HELD_ANYWHERE: [&str; 11] = [
    "output",
    "write-where-keys-are",
    "read-home",
    "namespaces",
    "mount",
    "unmount",
    "trace",
    "kernel-programs",
    "rings",
    "measure",
    "page-faults",
];

fn complete(found: &Enforced) -> bool {
    found.warning().is_none()
}

/// `sandbox::the_sandbox_holds_for_an_ordinary_user_too` repeats this.
#[test]
fn what_hostile_programs_try_is_held() {
    if needs("what_hostile_programs_try_is_held", complete).is_none() {
        return;
    }
    let output = crate::alara().args(["doctor", "--attack", "--json"]).output().unwrap();
    let tried: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(tried.len(), attacks().len());
    for one in tried {
        // Some need something that isn't on every machine.
        let numbers = one["how"].as_str().is_some_and(|how| how.contains("other numbers"));
        let lacks = ["read-home", "plant-refused", "signal"].iter().any(|name| one["name"] == *name);
        assert!(one["came"] == "held" || (one["came"] == "untried" && (numbers || lacks)), "{one}");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// An attack that always fails would prove nothing.
#[test]
fn without_a_sandbox_they_get_through() {
    for attack in attacks().iter().filter(|attack| !attack.is_guarded()) {
        let came = attack.run(Isolation::Off).unwrap();
        let anywhere = HELD_ANYWHERE.contains(&attack.name.as_str());
        let numbers = matches!(&came, Came::Untried(why) if why.contains("other numbers"));
        assert!(came == Came::Fell || anywhere || numbers, "{}: {came:?}", attack.name);
    }
}
