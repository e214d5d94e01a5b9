//! The system calls that steps have no business with, refused by a seccomp filter.
//!
//! Everything else is allowed.
//! The filter closes doors behind which kernels have had holes, and those through which a program
//! could escape from the rest of the isolation.
//! A program of another instruction set (32-bit on a 64-bit kernel) is killed.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Refused with EPERM, whatever the arguments.
const REFUSED: [libc::c_long; 48] = [
    // Mounts, and other roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes' memory and files.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Memory that belongs to a pipe, and to no process.
    libc::SYS_vmsplice,
    // Files by number, past all directories.
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // The kernel's keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Programs and buffers in the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_lookup_dcookie,
    // The machine itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
];

/// As if the kernel did not know them, so that programs take the older way.
/// `clone3` and `openat2` hide their flags from the filter, and the memory of a file without a name
/// belongs to no process.
const UNKNOWN: [libc::c_long; 5] =
    [libc::SYS_clone3, libc::SYS_openat2, libc::SYS_memfd_create, libc::SYS_memfd_secret, SYS_SETXATTRAT];
/// Linux 6.13.
const SYS_SETXATTRAT: libc::c_long = 463;

/// As if no file system had attributes: the name stands where the filter can't read it, and
/// `security.capability` gives rights to whoever runs the file later.
/// Nor sets any space aside: that takes a disk's room faster than anybody can watch.
const UNSUPPORTED: [libc::c_long; 4] =
    [libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_fallocate];

/// As if a larger buffer had been given to a socket: what is in there is in no process's memory.
const BUFFERS: [libc::c_int; 2] = [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE];
/// Most semaphores that a program gets at a time, of which the kernel keeps 32,000 sets.
const SEMAPHORES: libc::c_int = 64;

/// Calls that give a file its mode, and which of their arguments that is.
#[cfg(target_arch = "x86_64")]
const MODES: [(libc::c_long, u8); 9] = [
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_creat, 1),
    (libc::SYS_mkdir, 1),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];
#[cfg(not(target_arch = "x86_64"))]
const MODES: [(libc::c_long, u8); 5] = [
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
];

/// Calls that give one only if they make the file: where the flags and the mode are.
#[cfg(target_arch = "x86_64")]
const OPENS: [(libc::c_long, u8, u8); 2] = [(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: [(libc::c_long, u8, u8); 1] = [(libc::SYS_openat, 2, 3)];
/// The flags with which they make one; that of `O_TMPFILE` without that of a directory.
const MAKES: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
/// Modes that outlive the step: whoever runs the file runs it as its owner, or its group.
/// At a directory the latter is harmless, and usual where a group works together; the filter can't
/// tell which it is.
/// So it is let through where a layer drops it of files.
const AS_OWNER: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];

/// Flags of `clone` that make a new namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The kinds of sockets of a network that leads nowhere.
const OWN: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Those of the machine's.
/// A socket by path reaches services of the machine, whatever the network; pairs need no path, and
/// no call of these.
const NETWORK: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Which sockets a program may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// None but pairs.
    None,
    /// Those of a network that leads nowhere.
    Own,
    /// Those of the machine's network.
    All,
}

impl Sockets {
    fn families(self) -> &'static [libc::c_int] {
        match self {
            Sockets::None => &[],
            Sockets::Own => &OWN,
            Sockets::All => &NETWORK,
        }
    }
}

/// What x86-64 adds to a number for the same call with 32-bit pointers.
const X32: libc::c_long = 0x4000_0000;

/// Refuses the calls to this thread and all that it starts, for good.
/// `layered`: what it writes is looked through before it is the user's.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn refuse(sockets: Sockets, layered: bool) -> Result<(), Error> {
    for filter in filters(sockets, layered)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

fn filters(sockets: Sockets, layered: bool) -> Result<[BpfProgram; 4], Error> {
    let as_owner = || AS_OWNER.into_iter().filter(|bit| !layered || *bit != libc::S_ISGID);
    let argument = |index, operator, value: libc::c_int| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value as u64)
    };
    let has = |index, bits: u32| {
        let bits = u64::from(bits);
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits)
    };
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.map(|call| (call, Vec::new())).into();
    let flag =
        |flag: libc::c_int| SeccompRule::new(vec![argument(0, SeccompCmpOp::MaskedEq(flag as u64), flag)?]);
    refused.insert(libc::SYS_clone, NAMESPACES.into_iter().map(flag).collect::<Result<_, _>>()?);
    let none_of = sockets.families().iter().map(|family| argument(0, SeccompCmpOp::Ne, *family));
    let none_of: Vec<SeccompCondition> = none_of.collect::<Result<_, _>>()?;
    let rules = if none_of.is_empty() { Vec::new() } else { vec![SeccompRule::new(none_of)?] };
    refused.insert(libc::SYS_socket, rules);
    for (call, mode) in MODES {
        let rules = as_owner().map(|bit| SeccompRule::new(vec![has(mode, bit)?]));
        refused.insert(call, rules.collect::<Result<_, _>>()?);
    }
    for (call, flags, mode) in OPENS {
        let both = |make: libc::c_int, bit| SeccompRule::new(vec![has(flags, make as u32)?, has(mode, bit)?]);
        let rules = MAKES.into_iter().flat_map(|make| as_owner().map(move |bit| both(make, bit)));
        refused.insert(call, rules.collect::<Result<_, _>>()?);
    }
    refused
        .insert(libc::SYS_semget, vec![SeccompRule::new(vec![argument(1, SeccompCmpOp::Gt, SEMAPHORES)?])?]);
    // A thread with files of its own: nobody would see them.
    let thread = libc::CLONE_THREAD as u32;
    let apart = SeccompCmpOp::MaskedEq(u64::from(thread | libc::CLONE_FILES as u32));
    let apart = SeccompCondition::new(0, SeccompCmpArgLen::Dword, apart, u64::from(thread))?;
    refused.entry(libc::SYS_clone).or_default().push(SeccompRule::new(vec![apart])?);
    let buffers = BUFFERS.map(|option| {
        SeccompRule::new(vec![
            argument(1, SeccompCmpOp::Eq, libc::SOL_SOCKET)?,
            argument(2, SeccompCmpOp::Eq, option)?,
        ])
    });
    let buffers = buffers.into_iter().collect::<Result<_, _>>()?;
    let all = |calls: &[libc::c_long]| calls.iter().map(|call| (*call, Vec::new())).collect();
    Ok([
        filter(refused, libc::EPERM)?,
        filter(all(&UNKNOWN), libc::ENOSYS)?,
        filter(all(&UNSUPPORTED), libc::EOPNOTSUPP)?,
        filter([(libc::SYS_setsockopt, buffers)].into(), 0)?,
    ])
}

fn filter(calls: BTreeMap<i64, Vec<SeccompRule>>, error: libc::c_int) -> Result<BpfProgram, Error> {
    let mut rules = calls.clone();
    if cfg!(target_arch = "x86_64") {
        rules.extend(calls.into_iter().map(|(call, rule)| (call | X32, rule)));
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error as u32), architecture)?;
    Ok(filter.try_into()?)
}
