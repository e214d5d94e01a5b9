//! The filesystem that the program sees: hidden paths, private ones, and the rest read-only.
//! The launcher's process calls this on its own mount namespace only.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount as mount_at};
use nix::sys::stat::Mode;

use super::launcher::{Layer, Plan};

/// The path of shared memory: private to each run.
pub const SHM: &str = "/dev/shm";
/// The flags for mounting an empty directory over another.
const COVER: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
const NONE: Option<&str> = None;

/// What couldn't be mounted, and why.
pub type Error = (String, nix::Error);

fn at(path: &Path) -> impl FnOnce(nix::Error) -> Error + use<> {
    let what = path.display().to_string();
    move |error| (what, error)
}

/// Mounts the plan's view.
///
/// # Errors
/// A mount fails.
pub fn mount(plan: &Plan) -> Result<(), Error> {
    separate().map_err(at(Path::new("/")))?;
    let tmp = Path::new("/tmp");
    // Below a private `/tmp`, the only host paths are work and home.
    let below_tmp = |path: &Path| plan.private_tmp.is_some() && path.starts_with(tmp);
    let own = [(&plan.work, &plan.work_inside), (&plan.home, &plan.home_inside)];
    let own: Vec<&PathBuf> =
        own.iter().filter(|(path, inside)| path == inside).map(|(path, _)| *path).collect();
    let covered = || plan.over.iter().map(|layer| &layer.covered);
    let mut shown: Vec<&PathBuf> = plan
        .view
        .shown
        .iter()
        .filter(|path| !below_tmp(path) && path.exists())
        .chain(own)
        .chain(covered())
        .collect();
    shown.sort();
    shown.dedup();
    // Paths below a covered path are held open and mounted again.
    let handle = |path: &Path| open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(at(path));
    let handles = shown.iter().map(|path| handle(path)).collect::<Result<Vec<_>, _>>()?;
    let private_tmp = plan.private_tmp.as_deref().map(handle).transpose()?;
    let layer = |layer: &Layer| Ok((layer.covered.clone(), handle(&layer.upper)?, handle(&layer.work)?));
    let layers = plan.over.iter().map(layer).collect::<Result<Vec<_>, _>>()?;

    for path in &plan.view.hidden {
        hide(path)?;
    }
    if let Some(handle) = private_tmp {
        bind(&handle, tmp)?;
    }
    if Path::new(SHM).is_dir() {
        // Empty files take memory too.
        let options = format!("mode=1777,size={},nr_inodes=65536", plan.limits.memory_bytes);
        mount_at(Some("shm"), SHM, Some("tmpfs"), COVER, Some(options.as_str()))
            .map_err(at(Path::new(SHM)))?;
    }
    for (path, handle) in shown.into_iter().zip(&handles) {
        match layers.iter().find(|(covered, ..)| covered == path) {
            Some((_, upper, work)) => cover(handle, upper, work, path)?,
            None => bind(handle, path)?,
        }
    }
    for path in plan.view.secrets.iter().filter(|path| path.exists()) {
        hide(path)?;
    }
    let mut writable = vec![plan.work_inside.as_path(), &plan.home_inside, Path::new(SHM)];
    writable.extend(covered().map(PathBuf::as_path));
    writable.extend(plan.private_tmp.is_some().then_some(tmp));
    let protected: Vec<&Path> =
        plan.protected.iter().map(PathBuf::as_path).filter(|path| path.exists()).collect();
    // A mount can't be moved or removed; neither can the directories on the way to it, if they are
    // mounts too.
    let below_work = |path: &&Path| *path != plan.work_inside && path.starts_with(&plan.work_inside);
    let mut fixed: Vec<&Path> =
        protected.iter().flat_map(|path| path.ancestors().filter(below_work).chain([*path])).collect();
    // Outer paths before inner ones.
    fixed.sort();
    fixed.dedup();
    for path in fixed {
        bind(&handle(path)?, path)?;
    }
    protect(&writable, &protected)
}

/// Mounts private terminals, instead of those on which the user types.
/// Not every system has them.
pub fn mount_terminals() -> bool {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount_at(Some("devpts"), "/dev/pts", Some("devpts"), flags, Some("newinstance,ptmxmode=0666,mode=600"))
        .is_ok()
}

/// Mounts a `/proc` of the current process namespace.
pub fn mount_proc() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_at(Some("proc"), "/proc", Some("proc"), flags, NONE)
}

/// Whether this process, superuser of its namespace, can mount; tried on its `/tmp`.
pub fn works() -> bool {
    separate().is_ok() && mount_at(Some("probe"), "/tmp", Some("tmpfs"), MsFlags::empty(), NONE).is_ok()
}

/// Drops cached names of a covered directory.
/// The kernel doesn't look again by itself, since the directory below a layer shouldn't change.
/// Remounting makes it look, except for open files.
pub fn refresh(path: &Path) {
    // Without it, a job continues to see the old names: no reason to end it.
    let _ = mount_at(NONE, path, NONE, COVER | MsFlags::MS_REMOUNT, NONE);
}

/// The errno of a system error.
pub fn number(error: &std::io::Error) -> nix::Error {
    error.raw_os_error().map_or(nix::Error::EIO, nix::Error::from_raw)
}

/// Whether something else is mounted below `path`.
pub fn within(path: &Path) -> bool {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut points =
        String::from_utf8_lossy(&table).lines().filter_map(mount_point).collect::<Vec<_>>().into_iter();
    points.any(|(point, _)| point != path && point.starts_with(path))
}

/// Makes later mounts visible in this namespace only.
fn separate() -> nix::Result<()> {
    mount_at(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
}

/// A path to the file behind a handle, wherever it is.
fn behind(handle: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// Creates `path`, of the same kind as the file behind a handle, if the path is in a cover.
fn make_place(source: &str, path: &Path) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    let make = if Path::new(source).is_dir() { std::fs::create_dir_all(path) } else { make_file(path) };
    make.map_err(|error| at(path)(number(&error)))
}

/// Mounts the directory behind `lower` at `path`, with all writes going to `upper`.
/// `work` is for the kernel, in the same filesystem.
/// This fails if another filesystem is mounted in the directory, or if attributes can't be written.
fn cover(lower: &impl AsRawFd, upper: &impl AsRawFd, work: &impl AsRawFd, path: &Path) -> Result<(), Error> {
    let lower = behind(lower);
    make_place(&lower, path)?;
    // None of it needs to survive a crash of the machine.
    let options = format!(
        "lowerdir={lower},upperdir={},workdir={},userxattr,index=off,volatile",
        behind(upper),
        behind(work)
    );
    mount_at(Some("layer"), path, Some("overlay"), COVER, Some(options.as_str())).map_err(at(path))
}

/// Mounts the file behind a handle at `path`, which is created if it is a directory in a cover.
fn bind(handle: &impl AsRawFd, path: &Path) -> Result<(), Error> {
    let source = behind(handle);
    make_place(&source, path)?;
    mount_at(Some(source.as_str()), path, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).map_err(at(path))
}

fn make_file(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::File::create(path).map(drop)
}

fn hide(path: &Path) -> Result<(), Error> {
    let hidden = if path.is_dir() {
        mount_at(Some("hidden"), path, Some("tmpfs"), COVER, Some("mode=0755,size=4k"))
    } else {
        mount_at(Some("/dev/null"), path, NONE, MsFlags::MS_BIND, NONE)
    };
    hidden.map_err(at(path))
}

/// Makes every mount read-only except those at or below `writable` that aren't at or below
/// `protected`.
/// Landlock forbids writing, but not changing the permissions, owner and times of the user's files.
fn protect(writable: &[&Path], protected: &[&Path]) -> Result<(), Error> {
    const TABLE: &str = "/proc/self/mountinfo";
    let table = std::fs::read(TABLE).map_err(|error| at(Path::new(TABLE))(number(&error)))?;
    for (path, flags) in String::from_utf8_lossy(&table).lines().filter_map(mount_point) {
        let below = |places: &[&Path]| places.iter().any(|place| path.starts_with(place));
        if below(writable) && !below(protected) {
            continue;
        }
        let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        match mount_at(NONE, &path, NONE, flags, NONE) {
            // A mount below a covered path is out of the program's reach too.
            Err(error) if path == Path::new("/") => return Err(at(&path)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Path and flags of a line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
fn mount_point(line: &str) -> Option<(PathBuf, MsFlags)> {
    const FLAGS: [(&str, MsFlags); 6] = [
        ("nosuid", MsFlags::MS_NOSUID),
        ("nodev", MsFlags::MS_NODEV),
        ("noexec", MsFlags::MS_NOEXEC),
        ("noatime", MsFlags::MS_NOATIME),
        ("nodiratime", MsFlags::MS_NODIRATIME),
        ("relatime", MsFlags::MS_RELATIME),
    ];
    let mut fields = line.split(' ').skip(4);
    let (path, options) = (fields.next()?, fields.next()?);
    let flags = FLAGS.iter().filter(|(name, _)| options.split(',').any(|option| option == *name));
    Some((unescape(path), flags.fold(MsFlags::empty(), |all, (_, flag)| all | *flag)))
}

/// Replaces escapes such as `\040` in a path by their bytes.
fn unescape(path: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut parts = path.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..3).map(|digits| u8::from_str_radix(digits, 8)) {
            Some(Ok(byte)) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[3..]);
            }
            _ => bytes.extend(format!("\\{part}").bytes()),
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_table_of_mounts() {
        let check = |line, expected: Option<(&str, MsFlags)>| {
            assert_eq!(mount_point(line), expected.map(|(path, flags)| (path.into(), flags)));
        };
        check(
            "28 27 0:25 / /mnt/a\\040b\\134 ro,nosuid,nodev,relatime shared:1 - tmpfs x ro,size=4k",
            Some(("/mnt/a b\\", COVER | MsFlags::MS_RELATIME)),
        );
        check("27 1 254:0 / / rw - ext4 /dev/vda rw", Some(("/", MsFlags::empty())));
        check("27 1 254:0 /", None);
    }
}
