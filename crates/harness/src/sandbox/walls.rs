//! The walls themselves: namespaces, mounts, limits, Landlock. Called by the launcher's process on itself only.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount as mount_at};
use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{getgid, getuid};

use super::Enforced;
use super::launcher::Plan;

/// The newest Landlock version that we know how to use; an older kernel does what it can.
const LANDLOCK: ABI = ABI::V7;
/// Devices that any program may write to.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];
/// Where shared memory lives: private to each run.
const SHM: &str = "/dev/shm";
const NONE: Option<&str> = None;

/// Enters the plan's namespaces, as the superuser of the user namespace.
pub fn unshare(plan: &Plan) -> nix::Result<()> {
    let layers = plan.layers;
    let mut flags = CloneFlags::empty();
    flags.set(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWIPC, layers.user);
    flags.set(CloneFlags::CLONE_NEWNS, layers.mounts);
    flags.set(CloneFlags::CLONE_NEWPID, layers.processes);
    flags.set(CloneFlags::CLONE_NEWNET, layers.network && !plan.network);
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    nix::sched::unshare(flags)?;
    if layers.user {
        map_ids((0, user), (0, group))?;
    }
    Ok(())
}

/// Enters one more user namespace with the user's own number, which has no rights over the mounts of the first.
pub fn drop_capabilities() -> nix::Result<()> {
    // The owner of the first namespace's files is the user outside; its number is not known in here any more but
    // through the map.
    let outside = |path: &str| -> Option<u32> {
        std::fs::read_to_string(path).ok()?.split_whitespace().nth(1)?.parse().ok()
    };
    let user = outside("/proc/self/uid_map").ok_or(nix::Error::EINVAL)?;
    let group = outside("/proc/self/gid_map").ok_or(nix::Error::EINVAL)?;
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?;
    map_ids((user, 0), (group, 0))
}

/// Maps one user and one group, each given as (inside, outside).
fn map_ids(user: (u32, u32), group: (u32, u32)) -> nix::Result<()> {
    let write = |path, text: String| {
        std::fs::write(path, text)
            .map_err(|error| error.raw_os_error().map_or(nix::Error::EIO, nix::Error::from_raw))
    };
    write("/proc/self/uid_map", format!("{} {} 1", user.0, user.1))?;
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/gid_map", format!("{} {} 1", group.0, group.1))
}

/// Private mounts: hidden credentials, private `/tmp` and `/dev/shm`. An error says which.
pub fn mount(plan: &Plan) -> Result<(), (String, nix::Error)> {
    let at = |path: &Path| {
        let what = path.display().to_string();
        move |error| (what, error)
    };
    separate().map_err(at(Path::new("/")))?;
    for path in &plan.hidden {
        hide(path).map_err(at(path))?;
    }
    // What lies below a directory that is about to be covered is held open and mounted again at its place.
    let keep = [(&plan.work, &plan.work_inside), (&plan.home, &plan.home_inside)].map(|(path, inside)| {
        let covered = path == inside
            && (path.starts_with("/tmp") || path.starts_with(SHM))
            && path != Path::new("/tmp");
        let handle = covered.then(|| open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()));
        (path, handle)
    });
    if let Some(tmp) = &plan.private_tmp {
        mount_at(Some(tmp), "/tmp", NONE, MsFlags::MS_BIND, NONE).map_err(at(tmp))?;
    }
    if Path::new(SHM).is_dir() {
        let options = format!("mode=1777,size={}", plan.memory_bytes);
        mount_at(
            Some("shm"),
            SHM,
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            Some(options.as_str()),
        )
        .map_err(at(Path::new(SHM)))?;
    }
    for (path, handle) in keep {
        let Some(handle) = handle else { continue };
        if path.starts_with("/tmp") && plan.private_tmp.is_none() {
            continue;
        }
        let handle = handle.map_err(at(path))?;
        let source = format!("/proc/self/fd/{}", handle.as_raw_fd());
        std::fs::create_dir_all(path).map_err(|_| nix::Error::EACCES).map_err(at(path))?;
        mount_at(Some(source.as_str()), path, NONE, MsFlags::MS_BIND, NONE).map_err(at(path))?;
    }
    Ok(())
}

/// From here on, mounts are seen in this namespace only.
fn separate() -> nix::Result<()> {
    mount_at(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
}

fn hide(path: &Path) -> nix::Result<()> {
    if path.is_dir() {
        mount_at(Some("hidden"), path, Some("tmpfs"), MsFlags::MS_RDONLY, Some("mode=0555,size=4k"))
    } else {
        mount_at(Some("/dev/null"), path, NONE, MsFlags::MS_BIND, NONE)
    }
}

/// A `/proc` of the own process namespace.
pub fn mount_proc() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_at(Some("proc"), "/proc", Some("proc"), flags, NONE)
}

/// Resource limits of the program and its children.
pub fn limit(plan: &Plan) -> nix::Result<()> {
    if !plan.layers.limits {
        return Ok(());
    }
    limit_core()?;
    // Not the address space: runtimes reserve far more of it than they use.
    setrlimit(Resource::RLIMIT_DATA, plan.memory_bytes, plan.memory_bytes)?;
    setrlimit(Resource::RLIMIT_FSIZE, plan.file_bytes, plan.file_bytes)?;
    if plan.layers.user {
        // Outside a user namespace it would count everything that the user runs.
        setrlimit(Resource::RLIMIT_NPROC, plan.processes, plan.processes)?;
    }
    Ok(())
}

/// No core dumps.
pub fn limit_core() -> nix::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
}

/// Reading and running everywhere, writing only where the plan says, and no way out by TCP, signals or abstract
/// sockets. (Paths that do not exist on this machine are left out.)
pub fn landlock(plan: &Plan) -> Result<RestrictionStatus, RulesetError> {
    let all = AccessFs::from_all(LANDLOCK);
    let writable = [&plan.work_inside, &plan.home_inside, &plan.tmp];
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(LANDLOCK))?;
    if !plan.network {
        rules = rules.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    let mut rules = rules
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(LANDLOCK)))?
        .add_rules(path_beneath_rules(writable, all))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::from_file(LANDLOCK)))?;
    if plan.layers.mounts && Path::new(SHM).is_dir() {
        rules = rules.add_rules(path_beneath_rules([SHM], all))?;
    }
    rules.restrict_self()
}

/// The Landlock version that this kernel enforces, found by restricting this process; 0 = none.
pub fn landlock_version() -> u8 {
    let restrict = || -> Option<LandlockStatus> {
        let rules = Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK)).ok()?.create().ok()?;
        let root = PathBeneath::new(PathFd::new("/").ok()?, AccessFs::from_all(LANDLOCK));
        Some(rules.add_rule(root).ok()?.restrict_self().ok()?.landlock)
    };
    match restrict() {
        Some(LandlockStatus::Available { effective_abi, .. }) => effective_abi as u8,
        _ => 0,
    }
}

/// Which namespaces this process can enter; it is in them afterwards.
pub fn probe_namespaces() -> Enforced {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let enter = |flags| nix::sched::unshare(flags).is_ok();
    // In this order: the user namespace gives the right to the others.
    let user = enter(CloneFlags::CLONE_NEWUSER)
        && map_ids((0, user), (0, group)).is_ok()
        && enter(CloneFlags::CLONE_NEWIPC);
    let mounts = enter(CloneFlags::CLONE_NEWNS)
        && separate().is_ok()
        && mount_at(Some("probe"), "/tmp", Some("tmpfs"), MsFlags::empty(), NONE).is_ok();
    let network = enter(CloneFlags::CLONE_NEWNET);
    let processes = enter(CloneFlags::CLONE_NEWPID);
    Enforced { user, mounts, network, processes, ..Enforced::default() }
}

/// Credentials below a home directory that programs have no business to read, as far as they exist; none that
/// contains or lies in one of `needed`.
pub fn credentials(home: &Path, needed: &[&Path]) -> Vec<PathBuf> {
    const NAMES: [&str; 14] = [
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".config/gcloud",
        ".config/gh",
        ".cargo/credentials.toml",
        ".git-credentials",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".password-store",
    ];
    let touches =
        |path: &Path| needed.iter().any(|needed| needed.starts_with(path) || path.starts_with(needed));
    NAMES
        .iter()
        .filter_map(|name| home.join(name).canonicalize().ok())
        .filter(|path| !touches(path))
        .collect()
}
