//! Names and fingerprints.

use super::*;

#[test]
fn parts_of_a_fingerprint_are_told_apart() {
    let of = |parts: &[&[u8]]| Fingerprint::of(parts);
    assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
    assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
    assert_eq!(of(&[]).to_string().len(), 64);
}

#[test]
fn reading_must_pay() {
    let options = Options { folder: PathBuf::new(), limit: u64::MAX, always: false, log: Log::default() };
    let mut disk = Disk::new(options, "a model", Fingerprint::of(&[]));
    let slow = Duration::from_millis(7);
    assert!(disk.pays(500 << 20, 5000, slow), "35 s of computing against one of reading");
    assert!(!disk.pays(500 << 20, 100, slow));
    assert!(!disk.pays(0, 1000, Duration::from_micros(1)), "a file costs something to open");
    // A disk that was seen to be slow is asked for less.
    for _ in 0..8 {
        disk.read(1 << 20, Instant::now() - Duration::from_secs(1));
    }
    assert!(!disk.pays(500 << 20, 5000, slow));
}
