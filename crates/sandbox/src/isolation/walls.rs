//! Isolates a program: namespaces, limits, Landlock.
//! The launcher's process calls this on itself only.

use std::fs::File;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{getgid, getuid};

use super::Enforced;
use super::launcher::Plan;
use super::loopback;
use super::mounts::{self, SHM};

/// The newest Landlock version that alara knows; an older kernel enforces what it can.
const LANDLOCK: ABI = ABI::V7;
/// Devices that any program may write to.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Terminal devices, if they are the program's own.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];
/// Most files that a process may have open.
const OPEN_FILES: u64 = 2048;
/// How many more processes the kernel admits than the watch: the watch kills a program long before,
/// except one that is faster than it looks.
const HEADROOM: u64 = 256;

/// Enters the plan's namespaces except the process namespace, as the superuser of the user
/// namespace.
pub fn unshare(plan: &Plan) -> nix::Result<()> {
    let layers = plan.layers;
    let mut flags = CloneFlags::empty();
    flags.set(CloneFlags::CLONE_NEWUSER, layers.user && plan.loopback.is_none());
    flags.set(CloneFlags::CLONE_NEWIPC, layers.user);
    flags.set(CloneFlags::CLONE_NEWNS, layers.mounts);
    flags.set(CloneFlags::CLONE_NEWNET, layers.network && !plan.has_sockets());
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    if let Some(paths) = &plan.loopback {
        let open = |path: &PathBuf| File::open(path).map_err(|error| mounts::number(&error));
        // Both are opened first: after entering the user namespace, the parent that holds the
        // network namespace isn't visible.
        let (user, network) = (open(&paths[0])?, open(&paths[1])?);
        nix::sched::setns(user, CloneFlags::CLONE_NEWUSER)?;
        nix::sched::setns(network, CloneFlags::CLONE_NEWNET)?;
    }
    // Where no namespaces are available, even an empty request may be refused.
    if !flags.is_empty() {
        nix::sched::unshare(flags)?;
    }
    if flags.contains(CloneFlags::CLONE_NEWUSER) {
        map_ids((0, user), (0, group))?;
    }
    Ok(())
}

/// Enters a user namespace, and in it a network namespace whose only interface is the loopback.
pub fn make_loopback() -> Result<(), (&'static str, std::io::Error)> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let named = |error: nix::Error| ("a network of the session's own", error.into());
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(named)?;
    map_ids((0, user), (0, group)).map_err(named)?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNET).map_err(named)?;
    loopback::start().map_err(|error| ("the loopback interface", error))
}

/// Makes the next child process 1 of a new process namespace.
/// No thread can be started after that.
pub fn unshare_processes() -> nix::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWPID)
}

/// Enters another user namespace with the user's own id, which has no rights over the mounts of the
/// first.
pub fn drop_capabilities() -> nix::Result<()> {
    // The user outside owns the first namespace's files; in here, only the map still knows their
    // id.
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

/// Bounds the process ids of the current process namespace, where the kernel (6.14) permits it:
/// this limit on processes applies to the superuser too.
pub fn bound_numbers(plan: &Plan) {
    // The kernel reserves the first 300 when the ids wrap around.
    let _ = std::fs::write("/proc/sys/kernel/pid_max", (plan.limits.processes + HEADROOM + 300).to_string());
}

/// Sets the resource limits of the program and its children.
pub fn limit(plan: &Plan) -> nix::Result<()> {
    if !plan.layers.limits {
        return Ok(());
    }
    limit_core()?;
    // Not the address space: runtimes reserve far more of it than they use.
    let limits = &plan.limits;
    bound(Resource::RLIMIT_DATA, limits.memory_bytes)?;
    bound(Resource::RLIMIT_FSIZE, plan.file_bytes)?;
    // Just as many sockets can be in transit to another process, where the watch can't see them.
    bound(Resource::RLIMIT_NOFILE, OPEN_FILES)?;
    // After the watch has had its chance.
    let seconds = limits.cpu.as_secs().saturating_add(2);
    bound(Resource::RLIMIT_CPU, seconds)?;
    if plan.layers.user {
        // Outside a user namespace, it would count every process of the user.
        bound(Resource::RLIMIT_NPROC, limits.processes.saturating_add(HEADROOM))?;
    }
    Ok(())
}

/// Sets a limit, or keeps a lower one: only the superuser may raise a limit of the system.
fn bound(resource: Resource, most: u64) -> nix::Result<()> {
    let (_, allowed) = getrlimit(resource)?;
    let most = most.min(allowed);
    setrlimit(resource, most, most)
}

/// Disables core dumps.
pub fn limit_core() -> nix::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
}

/// Permits reading and running everywhere but in `/dev`, writing only where the plan permits it,
/// and no access to the outside by TCP, signals or abstract sockets.
/// (Paths that don't exist on this machine are left out.)
pub fn landlock(plan: &Plan, own_terminals: bool) -> Result<RestrictionStatus, RulesetError> {
    let all = AccessFs::from_all(LANDLOCK);
    let writable = [&plan.work_inside, &plan.home_inside, &plan.tmp];
    let covered = plan.over.iter().map(|layer| &layer.covered);
    let writable = writable.into_iter().chain(covered).filter(|path| !plan.protected.contains(path));
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(LANDLOCK))?;
    if !plan.has_sockets() {
        rules = rules.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    // Not the devices: the superuser's programs could read whole disks there.
    let root = std::fs::read_dir("/").into_iter().flatten().flatten().map(|entry| entry.path());
    let readable = root.filter(|path| path != Path::new("/dev"));
    let devices = DEVICES.iter().chain(if own_terminals { &TERMINALS[..] } else { &[] });
    let mut rules = rules
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(LANDLOCK)))?
        .add_rules(path_beneath_rules(writable, all))?
        .add_rules(path_beneath_rules(devices, AccessFs::from_file(LANDLOCK)))?;
    if plan.layers.mounts && Path::new(SHM).is_dir() {
        rules = rules.add_rules(path_beneath_rules([SHM], all))?;
    }
    rules.restrict_self()
}

/// The Landlock version that this kernel enforces, found by restricting this process; 0 if none.
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
    // In this order: the user namespace grants the right to the others.
    let user = enter(CloneFlags::CLONE_NEWUSER)
        && map_ids((0, user), (0, group)).is_ok()
        && enter(CloneFlags::CLONE_NEWIPC);
    let mounts = enter(CloneFlags::CLONE_NEWNS) && mounts::works();
    let network = enter(CloneFlags::CLONE_NEWNET);
    let processes = enter(CloneFlags::CLONE_NEWPID);
    Enforced { user, mounts, network, processes, ..Enforced::default() }
}
