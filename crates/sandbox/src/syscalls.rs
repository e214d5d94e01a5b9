//! A seccomp filter that refuses the system calls that steps don't need.
//!
//! Everything else is allowed.
//! The filter refuses calls in which kernels have had vulnerabilities, and those by which a program
//! could escape from the rest of the isolation.
//! A program of another instruction set (32-bit on a 64-bit kernel) is killed.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Refused with EPERM, regardless of the arguments.
const REFUSED: [libc::c_long; 48] = [
    // Mounts, and changes of the root.
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
    // Memory that belongs to a pipe and to no process.
    libc::SYS_vmsplice,
    // Files by handle, bypassing all directories.
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // The kernel's keyrings.
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

/// Refused as unknown calls, so that programs use the older ones.
/// `clone3` and `openat2` hide their flags from the filter, and the memory of a nameless file
/// belongs to no process.
const UNKNOWN: [libc::c_long; 5] =
    [libc::SYS_clone3, libc::SYS_openat2, libc::SYS_memfd_create, libc::SYS_memfd_secret, SYS_SETXATTRAT];
/// Linux 6.13.
const SYS_SETXATTRAT: libc::c_long = 463;

/// Refused as if no filesystem had attributes: the filter can't read the attribute's name, and
/// `security.capability` would give rights to whoever runs the file later.
/// Nor may a program preallocate space: that fills a disk faster than the watch can see.
const UNSUPPORTED: [libc::c_long; 4] =
    [libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_fallocate];

/// Accepted but ignored: data in a socket's larger buffer is in no process's memory.
const BUFFERS: [libc::c_int; 2] = [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE];
/// Most semaphores that a program gets at once, of which the kernel keeps 32,000 sets.
const SEMAPHORES: libc::c_int = 64;

/// Calls that set a file's mode, and the index of that argument.
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

/// Calls that set a mode only if they create the file: the indexes of the flags and the mode.
#[cfg(target_arch = "x86_64")]
const OPENS: [(libc::c_long, u8, u8); 2] = [(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: [(libc::c_long, u8, u8); 1] = [(libc::SYS_openat, 2, 3)];
/// The flags with which they create a file; `O_TMPFILE` without the bit for a directory.
const MAKES: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
/// Modes that outlive the step: the file then runs as its owner or its group.
/// On a directory, set-group-ID is harmless, and common where a group works together; the filter
/// can't tell which it is.
/// So it is permitted where a layer drops it from files.
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

/// The socket families of an isolated network.
const OWN: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The socket families of the machine's network.
/// A socket by path reaches services of the machine, whatever the network; pairs need no path, and
/// none of these calls.
const NETWORK: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The sockets that a program may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// Only pairs.
    None,
    /// Those of an isolated network.
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

/// The bit that x86-64 adds to the number of a call with 32-bit pointers.
const X32: libc::c_long = 0x4000_0000;

/// Refuses the calls permanently for this thread and everything that it starts.
/// `layered` means that its writes are inspected before they reach the user's files.
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
    // A thread with its own file table: the watch couldn't see its files.
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
