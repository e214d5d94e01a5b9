//! The bytes of a file: mapped, embedded in the program, or in memory.
//! The only file of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// Shared, read-only bytes.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// Of a mapped file.
    Mapped(Arc<Mapped>),
    /// Of the program.
    Static(&'static [u8]),
    /// In memory.
    Owned(Arc<Vec<u8>>),
}

/// A mapped file.
#[derive(Debug)]
pub struct Mapped {
    /// Dropped before the map.
    watch: watch::Watched,
    map: Mmap,
    file: File,
    /// A stamp that changes whenever the file does.
    stamp: [i64; 4],
}

impl Bytes {
    /// Maps a whole file for reading.
    pub fn map(path: &Path) -> io::Result<Bytes> {
        let file = crate::file::open(path)?;
        let metadata = file.metadata()?;
        // An empty file can't be mapped everywhere.
        if metadata.len() == 0 {
            return Ok(Bytes::Static(&[]));
        }
        // SAFETY: The map is private and read-only, and `Mmap` owns it for as long as any slice of
        // it lives.
        // Rust can't rule out that another process writes to the file or truncates it meanwhile.
        // Then bytes change under a shared reference, as in every engine that maps models.
        // All values read from the map are plain integers and floats, for which every bit pattern
        // is valid.
        // Text is copied when it is validated.
        // A lost page reads as zeros (`watch`), and callers check `is_whole` after computing.
        let map = unsafe { Mmap::map(&file)? };
        // Weights are read from end to end for each token; large pages reduce the time for address
        // translation.
        // Linux reads missing data in such pages if the file system supports it.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let watch = watch::Watched::new(&map);
        Ok(Bytes::Mapped(Arc::new(Mapped { watch, map, stamp: stamp(&metadata), file })))
    }

    /// A stamp that changes whenever the file does, as far as the system can tell; zeros for data
    /// that is no file.
    pub(super) fn stamp(&self) -> [i64; 4] {
        match self {
            Bytes::Mapped(mapped) => mapped.stamp,
            Bytes::Static(_) | Bytes::Owned(_) => [0; 4],
        }
    }

    /// Whether no page read so far was lost.
    /// Costs nothing.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Bytes::Mapped(mapped) => !mapped.watch.is_lost(),
            Bytes::Static(_) | Bytes::Owned(_) => true,
        }
    }

    /// Whether the file still has its original length and modification time.
    /// Makes a system call.
    /// A file that was removed or replaced counts as unchanged as long as it is mapped.
    pub(super) fn is_unchanged(&self) -> bool {
        let Bytes::Mapped(mapped) = self else { return true };
        let about = |metadata: &Metadata| (metadata.len(), changed(metadata));
        match mapped.file.metadata() {
            Ok(metadata) => about(&metadata) == (mapped.map.len() as u64, [mapped.stamp[0], mapped.stamp[1]]),
            Err(_) => true,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(mapped) => &mapped.map,
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// Modification time of the contents, and of the metadata.
/// Replacing the file changes the second, even if the first is restored.
fn stamp(metadata: &Metadata) -> [i64; 4] {
    let [seconds, nanoseconds] = changed(metadata);
    #[cfg(unix)]
    let of_status = {
        use std::os::unix::fs::MetadataExt;
        [metadata.ctime(), metadata.ctime_nsec()]
    };
    #[cfg(not(unix))]
    let of_status = [0, 0];
    [seconds, nanoseconds, of_status[0], of_status[1]]
}

/// Modification time of the contents, in seconds and nanoseconds.
fn changed(metadata: &Metadata) -> [i64; 2] {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        [metadata.mtime(), metadata.mtime_nsec()]
    }
    #[cfg(not(unix))]
    {
        let since = metadata.modified().ok();
        let since =
            since.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        [since.as_secs() as i64, i64::from(since.subsec_nanos())]
    }
}

/// Handles lost pages of maps: the file was truncated, or the disk fails.
/// Touching such a page raises a signal that would end the process.
/// The handler replaces the map with zeros from that page on, and marks it as lost.
#[cfg(unix)]
mod watch {
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst};
    use std::sync::{Mutex, Once, PoisonError};

    use nix::libc;

    /// The address range of a map, and whether a page of it was lost.
    /// Never freed, since the handler may read it at any time, but reused.
    #[derive(Debug, Default)]
    struct MappedRange {
        /// Addresses; both 0 while unused.
        start: AtomicUsize,
        end: AtomicUsize,
        lost: AtomicBool,
        faults: AtomicU32,
        next: AtomicPtr<MappedRange>,
    }

    /// Watches a map until dropped.
    #[derive(Debug)]
    pub(super) struct Watched(&'static MappedRange);

    /// All ranges ever allocated.
    static PLACES: AtomicPtr<MappedRange> = AtomicPtr::new(ptr::null_mut());
    /// Held while a range is taken or released.
    static TAKING: Mutex<()> = Mutex::new(());
    static PAGE: AtomicUsize = AtomicUsize::new(4096);

    /// After this many faults in one map, faults are passed on: fewer threads can meet lost pages
    /// at the same time.
    const MOST_FAULTS: u32 = 4096;

    /// The signal depends on the system.
    const SIGNALS: [libc::c_int; 2] = [libc::SIGBUS, libc::SIGSEGV];

    impl Watched {
        pub(super) fn new(map: &[u8]) -> Watched {
            static INSTALLED: Once = Once::new();
            INSTALLED.call_once(install);
            let guard = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
            let place = places().find(|place| place.end.load(SeqCst) == 0).unwrap_or_else(|| {
                let place: &'static MappedRange = Box::leak(Box::default());
                place.next.store(PLACES.load(SeqCst), SeqCst);
                PLACES.store(ptr::from_ref(place).cast_mut(), SeqCst);
                place
            });
            place.lost.store(false, SeqCst);
            place.faults.store(0, SeqCst);
            place.start.store(map.as_ptr().addr(), SeqCst);
            place.end.store(map.as_ptr().addr() + map.len(), SeqCst);
            drop(guard);
            Watched(place)
        }

        pub(super) fn is_lost(&self) -> bool {
            self.0.lost.load(SeqCst)
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            let _guard = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.end.store(0, SeqCst);
            self.0.start.store(0, SeqCst);
        }
    }

    fn places() -> impl Iterator<Item = &'static MappedRange> {
        // SAFETY: The list only holds pointers to leaked places, which live forever and are changed
        // through atomics.
        let place = |pointer: *mut MappedRange| unsafe { pointer.as_ref() };
        std::iter::successors(place(PLACES.load(SeqCst)), move |before| place(before.next.load(SeqCst)))
    }

    /// The previous handlers of the signals.
    struct Before([UnsafeCell<MaybeUninit<libc::sigaction>>; 2]);

    // SAFETY: Written once, in `install`, before the handler that reads it is installed.
    unsafe impl Sync for Before {}

    static BEFORE: Before = Before([const { UnsafeCell::new(MaybeUninit::zeroed()) }; 2]);

    fn install() {
        // SAFETY: Each call gets valid pointers or null.
        // The old action is stored before the handler that reads it is installed.
        // The handler only does what signal handlers may do, and runs on the thread's signal stack.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            PAGE.store(usize::try_from(page).unwrap_or(4096), SeqCst);
            for (signal, before) in SIGNALS.into_iter().zip(&BEFORE.0) {
                if libc::sigaction(signal, ptr::null(), before.get().cast()) != 0 {
                    continue;
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&raw mut action.sa_mask);
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
    }

    /// Replaces the lost part of a map with zeros; passes faults at other addresses on to the
    /// previous handler.
    /// Only reads and writes atomics, and makes system calls.
    extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: The system gives a valid `info` for a handler with SA_SIGINFO.
        let address = unsafe { (*info).si_addr() }.addr();
        if !places().any(|place| mend(place, address)) {
            pass_on(signal, info, context);
        }
    }

    /// Whether the address is in that map; if so, makes it readable.
    fn mend(place: &MappedRange, address: usize) -> bool {
        let (start, end) = (place.start.load(SeqCst), place.end.load(SeqCst));
        if !(start..end).contains(&address) || place.faults.fetch_add(1, SeqCst) > MOST_FAULTS {
            return false;
        }
        // Mark first, so that a reader of zeros that checks afterwards sees the mark.
        place.lost.store(true, SeqCst);
        let page = PAGE.load(SeqCst);
        let from = address & !(page - 1);
        let length = end.next_multiple_of(page) - from;
        // SAFETY: The pages belong to a live map of this process, since a thread is reading them.
        // Nothing else owns them; they are read-only and stay so.
        // `Bytes::map` covers the change of their contents.
        // If the call succeeds, it leaves the interrupted thread's `errno` alone; if it doesn't,
        // the process ends.
        let mapped = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED;
            libc::mmap(ptr::without_provenance_mut(from), length, libc::PROT_READ, flags, -1, 0)
        };
        mapped != libc::MAP_FAILED
    }

    /// Passes a signal on to the previous handler; by default it ends the process.
    fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let Some(at) = SIGNALS.iter().position(|&own| own == signal) else { return };
        // SAFETY: `install` wrote the action before it installed this handler; zeros, the default
        // action, are valid as well.
        // A handler is called according to its flags.
        // With the default action restored, the faulting instruction runs again and ends the
        // process.
        unsafe {
            let before = (*BEFORE.0[at].get()).assume_init_ref();
            match before.sa_sigaction {
                libc::SIG_DFL | libc::SIG_IGN => {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    action.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(signal, &raw const action, ptr::null_mut());
                }
                handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                    std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
                }
                handler => std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal),
            }
        }
    }
}

/// Other systems lock a mapped file against changes.
#[cfg(not(unix))]
mod watch {
    #[derive(Debug)]
    pub(super) struct Watched;

    impl Watched {
        pub(super) fn new(_: &[u8]) -> Watched {
            Watched
        }

        pub(super) fn is_lost(&self) -> bool {
            false
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::OpenOptions;
    use std::process::Command;

    use super::*;

    fn cut(path: &Path, length: u64) {
        OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(length)).expect("it is ours");
    }

    #[test]
    fn pages_that_are_lost_read_as_zeros_and_are_told() {
        let folder = tempfile::tempdir().expect("there is room");
        let paths = [0, 1, 2].map(|number| folder.path().join(number.to_string()));
        let map = |path| {
            std::fs::write(path, vec![7; 1 << 20]).expect("it can be written");
            Bytes::map(path).expect("it can be read")
        };
        let [lost, other, partly] = paths.each_ref().map(|path| map(path));
        cut(&paths[0], 0);
        cut(&paths[2], 600_000);
        // No page was lost so far, but the file's size reveals the change.
        assert!(lost.is_whole() && !lost.is_unchanged());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(lost.iter().all(|&byte| byte == 0)));
                scope.spawn(|| assert!(other.iter().all(|&byte| byte == 7)));
                scope.spawn(|| {
                    assert!(partly[..600_000].iter().all(|&byte| byte == 7));
                    assert_eq!(partly[1 << 19 | 1 << 18], 0);
                });
            }
        });
        assert!(!lost.is_whole() && !partly.is_whole());
        assert!(other.is_whole() && other.is_unchanged());
        // A map that reuses a released range starts out whole.
        drop((lost, partly));
        let again = map(&paths[0]);
        assert!(again.is_whole() && again.is_unchanged() && again[1 << 19] == 7);
    }

    /// In a separate process: an endless recursion isn't the fault of a map, and is reported as
    /// usual.
    #[test]
    fn other_faults_end_the_process_as_before() {
        const CHILD: &str = "ALARA_TEST_OVERFLOW";
        #[allow(unconditional_recursion)]
        fn deeper(number: &mut [u8; 4096]) -> u8 {
            let mut own = [number[0]; 4096];
            deeper(std::hint::black_box(&mut own)) + own[7]
        }
        if std::env::var_os(CHILD).is_some() {
            let file = tempfile::NamedTempFile::new().expect("there is room");
            std::fs::write(file.path(), [1]).expect("it can be written");
            let _map = Bytes::map(file.path());
            deeper(&mut [0; 4096]);
        }
        let name = "gguf::map::tests::other_faults_end_the_process_as_before";
        let child = Command::new(std::env::current_exe().expect("this runs"))
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output();
        let child = child.expect("it starts");
        let message = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success() && message.contains("overflowed its stack"), "{message}");
    }
}
