//! Names and fingerprints.

use super::*;

#[test]
fn parts_of_a_fingerprint_are_told_apart() {
    let of = |parts: &[&[u8]]| Fingerprint::of(parts);
    assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
    assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
    assert_eq!(of(&[]).to_string().len(), 64);
}

fn options(folder: &Path) -> Options {
    Options {
        folder: folder.to_owned(),
        limit: u64::MAX,
        patience: Duration::MAX,
        always: false,
        log: Log::default(),
        outcome: Arc::default(),
    }
}

#[test]
fn reading_must_pay() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::new(options(folder.path()), "a model", Fingerprint::of(&[])).unwrap();
    let slow = Duration::from_millis(7);
    assert!(disk.pays(500 << 20, 5000, slow), "35 s of computing against one of reading");
    assert!(!disk.pays(500 << 20, 100, slow));
    assert!(!disk.pays(0, 1000, Duration::from_micros(1)), "a file costs something to open");
    // Reads that cost little more than opening a file don't measure the speed.
    for _ in 0..8 {
        disk.read(1 << 20, Instant::now() - Duration::from_secs(1));
    }
    assert!(disk.pays(500 << 20, 5000, slow));
    // A slow disk is used for less.
    for _ in 0..8 {
        disk.read(16 << 20, Instant::now() - Duration::from_secs(16));
    }
    assert!(!disk.pays(500 << 20, 5000, slow));
}

#[test]
fn the_queue_is_bounded_and_each_segment_waits_once() {
    let folder = tempfile::tempdir().unwrap();
    let impatient = Options { patience: Duration::ZERO, ..options(folder.path()) };
    let mut disk = Disk::new(impatient, "a model", Fingerprint::of(&[])).unwrap();
    for token in (0..200).chain(0..200) {
        disk.want(Segment { tokens: vec![token], start: 0 });
    }
    assert_eq!(disk.queue.len(), QUEUED);
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let outer = tempfile::tempdir().unwrap();
    let [folder, link] = ["folder", "link"].map(|name| outer.path().join(name));
    claim(&folder).unwrap();
    let with_mode = |mode: u32| {
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
        let options = options(&folder);
        let outcome = options.outcome.clone();
        let used = Disk::new(options, "a model", Fingerprint::of(&[])).is_some();
        assert_eq!(used, !outcome.off.load(Ordering::Relaxed));
        used
    };
    let modes = [0o700, 0o755, 0o770, 0o702, 0o1777];
    assert_eq!(modes.map(with_mode), [true, true, false, false, false]);
    with_mode(0o700);
    symlink(&folder, &link).unwrap();
    assert_eq!(claim(&link).unwrap_err().to_string(), "it is a link, not a folder");
    // The system's own folder belongs to another user, or is writable by everybody.
    assert!(claim(Path::new("/tmp")).is_err());
}

#[test]
fn only_what_is_damaged_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new(options(folder.path()), "a model", Fingerprint::of(&[])).unwrap();
    let path = folder.path().join("a file");
    std::fs::write(&path, "").unwrap();
    disk.distrust(&path, &std::io::Error::other("too many open files").into());
    assert!(path.exists());
    disk.distrust(&path, &Fault::Damaged("it is cut off"));
    assert!(!path.exists());
}

#[cfg(unix)]
#[test]
fn opening_a_pipe_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(matches!(Stored::open(&path), Err(Fault::Damaged("it is no file"))));
}

#[test]
fn a_file_that_is_cut_off_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a file");
    let header = file::Header {
        model: String::new(),
        fingerprint: String::new(),
        start: 0,
        tokens: 1,
        payload: 1 << 20,
        token_ns: 0,
    };
    let piece = vec![7; 1 << 20];
    let checksum = crc32fast::hash(&piece).to_le_bytes();
    std::fs::write(&path, [&header.bytes(&[5]), &piece[..], &checksum].concat()).unwrap();
    let (mut whole, mut cut) = (Stored::open(&path).unwrap(), Stored::open(&path).unwrap());
    assert!(cut.expect([1 << 20].into_iter()).is_ok() && cut.expect([1].into_iter()).is_err());
    let mut read = vec![0; 1 << 20];
    whole.read(&mut read).unwrap();
    assert!(read == piece);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    assert!(matches!(cut.read(&mut read), Err(Fault::Damaged("it is cut off"))));
}
