//! Tests the disk tier: its benefit, and that no damage to files changes an answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::model_tests::{BUDGET, Oracle, Random, SORTS, fixture, flush, options, pool, restarted, text};
use super::*;
use crate::backend::native::Native;
use crate::cache::disk::{Disk, Fingerprint, Log, Options, Stored, clear, list};

/// Logged messages.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn log(&self) -> Log {
        let lines = self.0.clone();
        Log::new(move |line| lines.lock().unwrap().push(line.to_owned()))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A prompt of static `parts` and a question.
fn prompt(inputs: &[(u32, u32)], question: u32) -> (Vec<u32>, Prefix) {
    let mut tokens = Vec::new();
    let mut prefix = Prefix::default();
    for &(kind, len) in inputs {
        tokens.extend(text(kind, len));
        prefix.add(tokens.len());
        prefix.pinned = tokens.len();
    }
    tokens.extend(text(question, 9));
    (tokens, prefix)
}

/// Asks, and returns the found prefix and the logits.
fn ask(pool: &mut Pool<Native>, (tokens, prefix): (Vec<u32>, Prefix)) -> (FoundPrefix, Vec<f32>) {
    let mut data = SequenceData::new(tokens, prefix);
    let mut logits = Vec::new();
    while data.pending() > 0 {
        logits = pool.step_and_read(&mut [&mut data], BUDGET);
    }
    pool.finish(&mut data);
    (data.found.unwrap(), logits)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    list(folder).unwrap().into_iter().map(|entry| entry.path).collect()
}

#[test]
fn static_text_is_there_after_a_restart() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let folder = tempfile::tempdir().unwrap();
        let lines = Lines::default();
        let mut first = restarted(&gguf, folder.path(), lines.log());
        assert_eq!(ask(&mut first, prompt(&[(0, 100), (1, 150)], 9)).0.cached, 0, "{case}");
        flush(&mut first);
        drop(first);
        assert_eq!(files(folder.path()).len(), 2, "{case}: a file for each segment");
        let mut question = 8;
        let mut check = |inputs: &[(u32, u32)], cached: usize, disk: usize, pool: &mut Pool<Native>| {
            question += 1;
            let (tokens, prefix) = prompt(inputs, question);
            let (found, logits) = ask(pool, (tokens.clone(), prefix));
            assert_eq!((found.cached, found.disk), (cached, disk), "{case} {inputs:?}");
            assert!(oracle.logits(&tokens) == logits, "{case} {inputs:?}");
        };
        let mut second = restarted(&gguf, folder.path(), lines.log());
        // A sibling shares the first segment; once read for it, the segment is in memory for the
        // next one.
        check(&[(0, 100), (2, 50)], 100, 100, &mut second);
        check(&[(0, 100), (1, 150)], 250, 150, &mut second);
        check(&[(0, 100), (1, 150)], 250, 0, &mut second);
        check(&[(0, 100), (1, 150)], 250, 250, &mut restarted(&gguf, folder.path(), lines.log()));
        // The sibling's addition is written as well.
        flush(&mut second);
        drop(second);
        assert_eq!(files(folder.path()).len(), 3, "{case}");
        check(&[(0, 100), (2, 50)], 150, 150, &mut restarted(&gguf, folder.path(), lines.log()));
        assert_eq!(lines.take(), [""; 0], "{case}");
    }
}

#[test]
fn a_decoding_sequence_waits_for_one_file_at_a_time() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let folder = tempfile::tempdir().unwrap();
        let inputs = [(0, 100), (1, 80), (2, 60)];
        let mut pool = restarted(&gguf, folder.path(), Log::default());
        ask(&mut pool, prompt(&inputs, 9));
        flush(&mut pool);
        drop(pool);
        let mut pool = restarted(&gguf, folder.path(), Log::default());
        // So slow that a file takes longer than a step.
        pool.disk.as_mut().unwrap().assume(1000.0);
        let (tokens, prefix) = prompt(&[], 7);
        let mut decoding = SequenceData::new(tokens, prefix);
        pool.step(&mut [&mut decoding], BUDGET).unwrap();
        let (tokens, prefix) = prompt(&inputs, 8);
        let mut waiting = SequenceData::new(tokens.clone(), prefix);
        let (mut steps, mut logits) = (0, Vec::new());
        while waiting.pending() > 0 {
            decoding.tokens.push(5);
            let stepped = pool.step(&mut [&mut decoding, &mut waiting], BUDGET).unwrap();
            assert!(stepped.each().any(|(at, _)| at == 0), "{case}: it goes on");
            steps += 1;
            logits = pool.logits_of_each(&stepped).pop().unwrap().1;
        }
        assert_eq!(steps, inputs.len(), "{case}");
        let found = waiting.found.clone().unwrap();
        assert_eq!((found.cached, found.disk), (240, 240), "{case}");
        assert!(oracle.logits(&tokens) == logits, "{case}");
    }
}

#[test]
fn what_was_cleared_is_written_again() {
    let gguf = fixture(SORTS[0]);
    let folder = tempfile::tempdir().unwrap();
    let mut pool = restarted(&gguf, folder.path(), Log::default());
    let until = std::time::Instant::now() + Duration::from_secs(20);
    for _ in 0..2 {
        while files(folder.path()).is_empty() {
            assert!(std::time::Instant::now() < until, "it is never written");
            ask(&mut pool, prompt(&[(0, 100)], 9));
            flush(&mut pool);
            std::thread::sleep(Duration::from_millis(5));
        }
        clear(folder.path()).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn files_are_for_the_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let gguf = fixture(SORTS[0]);
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("made/for/it");
    let mut pool = restarted(&gguf, &folder, Log::default());
    ask(&mut pool, prompt(&[(0, 100)], 9));
    flush(&mut pool);
    drop(pool);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&files(&folder)[0])), (0o700, 0o600));
}

#[test]
fn what_separates_tenants_is_not_undone_by_a_file() {
    let gguf = fixture(SORTS[0]);
    let folder = tempfile::tempdir().unwrap();
    let salted = |salt: &str| {
        let (tokens, prefix) = prompt(&[(0, 100)], 9);
        (tokens, Prefix { salt: salt.into(), ..prefix })
    };
    let mut pool = restarted(&gguf, folder.path(), Log::default());
    ask(&mut pool, salted("a tenant"));
    flush(&mut pool);
    assert!(files(folder.path()).is_empty(), "nothing of a tenant is written");
    ask(&mut pool, salted(""));
    flush(&mut pool);
    drop(pool);
    assert_eq!(files(folder.path()).len(), 1);
    let mut pool = restarted(&gguf, folder.path(), Log::default());
    assert_eq!(ask(&mut pool, salted("a tenant")).0.cached, 0, "nothing is read for one");
    assert_eq!(ask(&mut pool, salted("")).0.disk, 100);
}

#[test]
fn a_damaged_file_is_ignored_with_a_log_line() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let folder = tempfile::tempdir().unwrap();
        let lines = Lines::default();
        let mut first = restarted(&gguf, folder.path(), Log::default());
        ask(&mut first, prompt(&[(0, 100)], 9));
        flush(&mut first);
        drop(first);
        let path = files(folder.path()).remove(0);
        let whole = fs::read(&path).unwrap();
        let (tokens, prefix) = prompt(&[(0, 100)], 8);
        let mut random = Random(7);
        // At every structural position, and all over the file.
        let places = (0..40).chain([whole.len() - 1]).chain((0..20).map(|_| random.below(whole.len())));
        let changes = places.flat_map(|at| [(at, true), (at, false)]).chain([(whole.len(), true)]);
        for (at, cut) in changes.collect::<Vec<_>>() {
            let mut bytes = whole.clone();
            match (cut, bytes.get_mut(at)) {
                (false, Some(byte)) => *byte ^= 1 << (at % 8),
                // Extra bytes are an error as well.
                (true, None) => bytes.push(0),
                _ => bytes.truncate(at),
            }
            fs::write(&path, &bytes).unwrap();
            let mut pool = restarted(&gguf, folder.path(), lines.log());
            let (found, logits) = ask(&mut pool, (tokens.clone(), prefix.clone()));
            assert_eq!(found.cached, 0, "{case} {at} {cut}");
            assert!(oracle.logits(&tokens) == logits, "{case} {at} {cut}");
            let lines = lines.take();
            assert!(lines.len() == 1 && lines[0].contains("is ignored"), "{case} {at} {cut}: {lines:?}");
            flush(&mut pool);
            drop(pool);
            // The file is rewritten, identical except for the recorded computing time.
            let (again, new) = (fs::read(&path).unwrap(), Stored::open(&path).unwrap());
            assert_eq!(new.header.tokens, 100);
            let payload = again.len() - new.header.payload as usize;
            assert!(again[payload..] == whole[whole.len() - new.header.payload as usize..], "{case}");
        }
    }
}

#[test]
fn a_file_of_another_text_or_model_is_not_believed() {
    let gguf = fixture(SORTS[0]);
    let folder = tempfile::tempdir().unwrap();
    let lines = Lines::default();
    let mut pool = restarted(&gguf, folder.path(), lines.log());
    ask(&mut pool, prompt(&[(0, 100)], 9));
    ask(&mut pool, prompt(&[(1, 100)], 9));
    flush(&mut pool);
    drop(pool);
    let [one, other] = files(folder.path()).try_into().unwrap();
    fs::copy(&one, &other).unwrap();
    let mut pool = restarted(&gguf, folder.path(), lines.log());
    let cached = [0, 1].map(|kind| ask(&mut pool, prompt(&[(kind, 100)], 8)).0.cached);
    assert_eq!((cached.iter().sum::<usize>(), lines.take().len()), (100, 1), "{cached:?}");
    drop(pool);
    // Files of another model have other names, so they aren't opened.
    let mut another = restarted(&fixture("qwen3-exact"), folder.path(), lines.log());
    let options = Options { limit: 1 << 30, ..options(folder.path(), lines.log()) };
    another = another.with_disk(Disk::new(options, "another", Fingerprint::of(&[b"another"])));
    assert_eq!(ask(&mut another, prompt(&[(0, 100)], 8)).0.cached, 0);
    assert_eq!(lines.take(), [""; 0]);
}

#[test]
fn the_least_recently_used_is_evicted_first() {
    let gguf = fixture(SORTS[0]);
    let folder = tempfile::tempdir().unwrap();
    let lines = Lines::default();
    let with_limit = |limit: u64| {
        let options = Options { limit, ..options(folder.path(), lines.log()) };
        let disk = Disk::new(options, "a model", Fingerprint::of(&[b"limited"]));
        pool(&gguf, 640, BUDGET).with_disk(disk)
    };
    let write = |limit: u64, kind: u32| {
        let mut pool = with_limit(limit);
        let found = ask(&mut pool, prompt(&[(kind, 100)], 9)).0;
        flush(&mut pool);
        found.disk
    };
    let age = |path: &Path, seconds: u64| {
        let then = std::time::SystemTime::now() - Duration::from_secs(seconds);
        fs::File::open(path).unwrap().set_modified(then).unwrap();
    };
    write(u64::MAX, 0);
    let first = files(folder.path()).remove(0);
    let size = fs::metadata(&first).unwrap().len();
    write(2 * size + size / 2, 1);
    let second = files(folder.path()).into_iter().find(|path| *path != first).unwrap();
    age(&first, 2000);
    age(&second, 1000);
    // Used again, it is the most recent.
    assert_eq!(write(2 * size + size / 2, 0), 100);
    write(2 * size + size / 2, 2);
    assert!(first.exists() && !second.exists() && files(folder.path()).len() == 2);
    // A file that exceeds the limit is not begun, and evicts nothing.
    assert_eq!(lines.take(), [""; 0]);
    write(size / 2, 3);
    assert_eq!(files(folder.path()).len(), 2);
    let said = lines.take();
    assert!(said.len() == 1 && said[0].contains("more than the limit"), "{said:?}");
}

#[test]
fn a_folder_that_can_not_be_written_is_logged_once() {
    let gguf = fixture(SORTS[0]);
    let outer = tempfile::tempdir().unwrap();
    let file = outer.path().join("a file");
    fs::write(&file, "").unwrap();
    // Not even root can write to the system's own folder.
    for folder in [file.join("folder"), PathBuf::from("/proc/alara")] {
        let lines = Lines::default();
        let mut pool = restarted(&gguf, &folder, lines.log());
        for kind in 0..3 {
            assert_eq!(ask(&mut pool, prompt(&[(kind, 100)], 9)).0.cached, 0);
            flush(&mut pool);
        }
        drop(pool);
        let lines: Vec<String> =
            lines.take().into_iter().filter(|line| line.contains("is not used")).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}

/// A file system of a few hundred KiB, if this process may mount one.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(at: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs"]).arg(at);
        let mounted = mount.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success());
        mounted.then(|| Tiny(at.to_owned()))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_costs_a_log_line() {
    let gguf = fixture(SORTS[0]);
    let outer = tempfile::tempdir().unwrap();
    let Some(tiny) = Tiny::mount(outer.path()) else {
        println!("SKIPPED: a small file system can't be mounted");
        return;
    };
    let lines = Lines::default();
    let mut oracle = Oracle::new(&gguf);
    let mut pool = restarted(&gguf, &tiny.0, lines.log());
    for kind in 0..6 {
        let (tokens, prefix) = prompt(&[(kind, 300)], 9);
        let (_, logits) = ask(&mut pool, (tokens.clone(), prefix));
        assert!(oracle.logits(&tokens) == logits);
        flush(&mut pool);
    }
    drop(pool);
    let said = lines.take();
    assert!(said.len() == 1 && said[0].contains("No space left"), "{said:?}");
    let left: Vec<_> = fs::read_dir(&tiny.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| Stored::open(path).is_ok()), "nothing unfinished is left: {left:?}");
    // Files written before are used.
    let mut pool = restarted(&gguf, &tiny.0, lines.log());
    let served: usize = (0..6).map(|kind| ask(&mut pool, prompt(&[(kind, 300)], 8)).0.disk).sum();
    assert_eq!(served, 300 * left.len());
}

#[test]
fn several_write_and_clear_in_one_folder() {
    let gguf = fixture(SORTS[0]);
    let folder = tempfile::tempdir().unwrap();
    let lines = Lines::default();
    let work = |seed: u64| {
        let mut random = Random(seed);
        let mut oracle = Oracle::new(&gguf);
        for _ in 0..12 {
            let mut pool = restarted(&gguf, folder.path(), lines.log());
            for _ in 0..3 {
                let (tokens, prefix) =
                    prompt(&[(random.below(3) as u32, 70), (random.below(3) as u32, 40)], 9);
                let (_, logits) = ask(&mut pool, (tokens.clone(), prefix));
                assert!(oracle.logits(&tokens) == logits);
                flush(&mut pool);
            }
            if random.below(4) == 0 {
                clear(folder.path()).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        [1, 2, 3].map(|seed| scope.spawn(move || work(seed))).map(|it| it.join().unwrap())
    });
    assert_eq!(lines.take(), [""; 0]);
    let cleared = clear(folder.path()).unwrap();
    assert_eq!((cleared.left, fs::read_dir(folder.path()).unwrap().count()), (0, 0));
    assert_eq!(clear(&folder.path().join("none")).unwrap().files, 0);
}

/// Writes files until it is killed; does nothing unless started by the test that kills it.
#[test]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os("ALARA_TEST_KILLED") else { return };
    let gguf = fixture(SORTS[3]);
    let mut pool = restarted(&gguf, Path::new(&folder), Log::default());
    for kind in 0..500 {
        ask(&mut pool, prompt(&[(kind % 50, 60 + kind)], 9));
        flush(&mut pool);
    }
}

#[test]
fn a_killed_process_leaves_whole_files_only() {
    let gguf = fixture(SORTS[3]);
    let mut oracle = Oracle::new(&gguf);
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(3);
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["pool::disk_tests::writes_until_it_is_killed", "--exact"]);
        child.env("ALARA_TEST_KILLED", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        // Wait until it writes.
        let before = fs::read_dir(folder.path()).unwrap().count();
        while fs::read_dir(folder.path()).unwrap().count() <= before && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.below(60_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let lines = Lines::default();
        let mut pool = restarted(&gguf, folder.path(), lines.log());
        assert!(list(folder.path()).unwrap().iter().all(|entry| entry.model.is_some()), "round {round}");
        for kind in 0..3 {
            let (tokens, prefix) = prompt(&[(kind, 60 + kind)], 9);
            let (_, logits) = ask(&mut pool, (tokens.clone(), prefix));
            assert!(oracle.logits(&tokens) == logits, "round {round}");
        }
        assert_eq!(lines.take(), [""; 0], "round {round}");
    }
    // The next writer removes the killed process's unfinished files.
    let mut pool = restarted(&gguf, folder.path(), Log::default());
    ask(&mut pool, prompt(&[(77, 90)], 9));
    flush(&mut pool);
    drop(pool);
    let unfinished = fs::read_dir(folder.path()).unwrap().flatten();
    let unfinished = unfinished.filter(|entry| entry.path().extension().is_some_and(|it| it == "part"));
    assert_eq!(unfinished.count(), 0);
    let mut pool = restarted(&gguf, folder.path(), Log::default());
    assert_eq!(ask(&mut pool, prompt(&[(77, 90)], 9)).0.disk, 90);
}
